"""Check the experiments of a notebook before its jobs start, without training, reading or writing anything."""
