"""SLURM: the script it is given, the record of what it was given, what it is asked and what it answers."""
