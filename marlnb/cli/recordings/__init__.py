"""Record, explain, convert and repair."""
