"""Attributions through a recurrent state: of an action to the observations of earlier steps."""
