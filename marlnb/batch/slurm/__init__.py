"""SLURM: scripts, records of submissions, queries and their answers."""
