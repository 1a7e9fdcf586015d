"""Sites: the named places in a network whose activations can be captured and edited."""
