"""Concept activation vectors (TCAV) and the effect of a concept."""
