"""Matches between any two players: their seats, and their policies."""
