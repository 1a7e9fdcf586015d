"""Rollouts, the trainer, checkpoints, the run folder and evaluation."""
