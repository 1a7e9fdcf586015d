"""Policies and critics: networks with distributions and values."""
