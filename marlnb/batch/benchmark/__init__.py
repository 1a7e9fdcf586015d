"""Benchmarks: algorithms × environments × seeds, trained, evaluated and compared, from one specification."""
