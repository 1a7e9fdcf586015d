"""One file for each circuit. The decorator `@circuit` registers it."""
