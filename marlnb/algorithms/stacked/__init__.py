"""Learners of several training runs as one: stacked weights, one gradient and one step of Adam."""
