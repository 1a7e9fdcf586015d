"""Doctor: find before a submission what would fail on the node.

Each check is a function with the decorator `check` in a module of this package; `examine` runs all checks.
"""
