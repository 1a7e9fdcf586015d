"""Notebooks run without anyone looking on."""
