"""A kernel of this environment, and what its widgets need, in a Jupyter that belongs to somebody else."""
