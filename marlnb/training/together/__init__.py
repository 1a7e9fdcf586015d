"""Seeds of one experiment that train together: which can, how they are joined, and their loop."""
