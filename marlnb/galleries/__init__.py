"""Galleries: trained agents and recordings that open at once, each with its recipe and its card.

An entry is a folder: a run with some of its checkpoints, a small recording, `recipe.yaml` and `card.json`.
"""
