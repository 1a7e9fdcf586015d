"""Repair, merge, extract, backfill and reproduce recordings."""
