"""Scoring what an analysis claims against the answer key."""
