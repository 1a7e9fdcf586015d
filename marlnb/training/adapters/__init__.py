"""Agents trained with other libraries: BenchMARL, torchrl, Stable-Baselines3, or any torch module."""
