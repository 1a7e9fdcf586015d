"""Collecting rollouts and playing episodes."""
