"""Doctor: what would fail on the node, said before anything is submitted.

Each check is a function with the decorator `check`, in a module of this package; `examine` runs them all.
"""
