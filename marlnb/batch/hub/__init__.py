"""Install a kernel of this environment, with its widgets, in another Jupyter, e.g. a JupyterHub."""
