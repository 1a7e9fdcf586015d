"""Figures of leagues and of evolving populations."""
