"""Training players of a league: matches, opponents, decisions and files."""
