"""Does each algorithm learn what it should? Whole trainings with known targets, too long for the tests."""
