"""Gradients of a minibatch as compiled code, and the step of Adam that they make."""
