"""One file a family: its configuration and its Learner."""
