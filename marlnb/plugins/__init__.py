"""Where code of others comes in: registries, what is built from a config, import paths, and errors that it raises."""
