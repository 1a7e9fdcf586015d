"""What a table of results says about players: ratings, equilibria and exploitability. Plain arrays, no torch."""
