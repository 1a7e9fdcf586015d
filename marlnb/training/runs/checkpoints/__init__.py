"""Checkpoints on disk: the folder of each, its manifest and tensors; notes on them, and their removal."""
