"""Networks of other libraries (BenchMARL, torchrl, Stable-Baselines3, PyTorch), with sites."""
