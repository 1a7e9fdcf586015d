"""Checks that each algorithm learns: whole trainings with known targets, too long for the tests."""
