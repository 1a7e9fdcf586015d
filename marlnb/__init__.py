"""marlnb: train multi-agent reinforcement-learning agents in a notebook and look inside them."""
