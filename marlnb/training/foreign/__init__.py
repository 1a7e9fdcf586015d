"""Agents from elsewhere: from modules, torchrl policies, BenchMARL's experiments and Stable-Baselines3's models."""
