"""Stepping copies of PettingZoo environments, here or in processes of their own. Nothing here imports torch."""
