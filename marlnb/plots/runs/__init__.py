"""Figures of training runs: learning curves, benchmarks, sweeps and maps of runs."""
