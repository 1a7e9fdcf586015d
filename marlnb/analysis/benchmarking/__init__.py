"""Statistics over runs: intervals, performance profiles and comparison."""
