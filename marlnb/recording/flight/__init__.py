"""Recordings of the training itself: of a few envs while they are trained in, or of any env afterwards."""
