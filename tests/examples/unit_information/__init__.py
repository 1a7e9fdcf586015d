"""A complete analysis in one folder: the function and its result, a figure, and a score on planted circuits."""
