"""Influence between agents, and what messages carry."""
