"""From overrides to an experiment, and back: `env=… algorithm.lr=3e-4` in Hydra's grammar, variants in YAML files."""
