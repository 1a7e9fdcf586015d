"""Panels that make and list recordings."""
