"""Gradient steps: Adam, and a step as compiled code."""
