"""Training members of an evolution: generations, offspring, perturbations and what judges them."""
