"""Learners of several trainings as one: stacked weights, one gradient and one step of Adam."""
