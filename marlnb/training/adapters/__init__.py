"""Agents that were trained elsewhere: BenchMARL, torchrl, Stable-Baselines3, any module."""
