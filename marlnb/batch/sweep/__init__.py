"""Sweeps: the grammar of parameters and the jobs that it expands to."""
