"""Reports that compare the jobs of a batch."""
