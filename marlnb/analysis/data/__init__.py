"""Rows, labels and activations of a recording, in the form that analyses read."""
