"""Where jobs run: one file an executor."""
