"""Estimators and tests that analyses share, each with its equation and its source."""
