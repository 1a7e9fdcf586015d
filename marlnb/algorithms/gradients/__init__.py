"""Gradients of a minibatch: on several cores, as compiled code, and the step of Adam that they make."""
