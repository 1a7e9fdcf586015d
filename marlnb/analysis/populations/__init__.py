"""Players of leagues compared: matches, exploits, representations and concepts along their snapshots."""
