"""Run notebooks as jobs, here or on a cluster."""
