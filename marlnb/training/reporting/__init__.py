"""How a training run reports: its summary, progress and status, loggers, and a profile of its time."""
