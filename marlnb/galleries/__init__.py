"""Galleries: trained agents and recordings that open immediately, each with its recipe and its card.

An entry is a folder: a run with some of its checkpoints, a small recording, `recipe.yaml` and `card.json`.
"""
