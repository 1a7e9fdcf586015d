"""Forms that compose an experiment."""
