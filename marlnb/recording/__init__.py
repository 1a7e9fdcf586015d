"""The recorder, the HDF5 file and its lazy reader."""
