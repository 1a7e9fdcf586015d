"""The HDF5 file of a recording: layout, writing and reading."""
