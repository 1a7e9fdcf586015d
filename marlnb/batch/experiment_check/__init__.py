"""Check the experiments of a notebook before its jobs start, without executing it and without loading torch."""
