"""Figures, drawn from arrays and tables that they are handed."""
