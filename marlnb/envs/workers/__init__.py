"""Steps PettingZoo environments in this process or in worker processes. Nothing here imports torch."""
