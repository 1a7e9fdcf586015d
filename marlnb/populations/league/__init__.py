"""A league: its players, its matches, and what follows from their results."""
