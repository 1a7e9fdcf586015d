"""Environments for planted circuits."""
