"""Panels that show and control a run."""
