"""Populations of agents that learn against or from each other: leagues."""
