"""Recordings in other formats: arrays, Minari, NWB."""
