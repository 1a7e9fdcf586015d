"""One file per family: its configuration and its Learner."""
