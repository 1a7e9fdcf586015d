"""Checks that each algorithm learns: whole training runs with known targets, too long for the tests."""
