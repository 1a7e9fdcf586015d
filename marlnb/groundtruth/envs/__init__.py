"""Environments in which circuits are planted."""
