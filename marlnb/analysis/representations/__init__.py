"""Comparing representations across agents, checkpoints, events and roles."""
