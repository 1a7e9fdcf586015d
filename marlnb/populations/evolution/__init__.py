"""Populations: members that train, are evaluated, selected and mutated; their lineage is in plain files."""
