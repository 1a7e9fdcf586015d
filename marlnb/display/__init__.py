"""Text for people: counts, sizes and durations in words, lines that are rewritten, and HTML for notebooks."""
