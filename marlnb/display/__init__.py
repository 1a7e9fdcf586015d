"""Numbers and tables for people: counts, sizes and durations in words, and HTML for notebooks."""
