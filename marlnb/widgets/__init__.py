"""Training cells: forms made from the configuration's dataclasses, live panels, and what they draw with."""
