"""The options of the algorithms. Free of torch until a learner is built."""
