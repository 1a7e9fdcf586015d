"""Networks whose every layer keeps the agent axis."""
