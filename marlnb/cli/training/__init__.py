"""Train, stop, evaluate and compare."""
