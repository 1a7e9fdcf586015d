"""Check and prepare this machine, a hub or a cluster."""
