"""Decoding: what can be read from hidden states, next to its controls."""
