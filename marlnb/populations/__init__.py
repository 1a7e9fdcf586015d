"""Populations: leagues, whose players learn against each other, and populations whose members evolve."""
