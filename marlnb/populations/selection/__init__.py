"""Kinds of evolution: which members continue, and which of those are mutated."""
