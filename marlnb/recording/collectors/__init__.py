"""Recording what a torchrl collector gathers."""
