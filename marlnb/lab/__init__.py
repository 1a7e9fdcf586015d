"""What the JupyterLab extension asks of its kernel: verbs over run folders, the same functions as the commands call."""
