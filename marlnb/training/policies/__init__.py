"""Trained policies: loading, evaluating and transforming them."""
