"""Sparse dictionaries of a site's activations."""
