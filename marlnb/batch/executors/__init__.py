"""Where jobs run: one file per executor."""
