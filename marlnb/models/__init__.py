"""Networks whose every layer keeps the agent axis, and the sites at which their units can be seen and edited."""
