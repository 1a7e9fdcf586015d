"""Training leagues and populations: matches and opponents, members and offspring, their loops, and their files."""
