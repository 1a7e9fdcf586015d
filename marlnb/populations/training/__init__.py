"""Training a league: matches, opponents, the loop of all learning players, and the files that it leaves."""
