"""How a training reports: its summary, progress and status, loggers, and a profile of its time."""
