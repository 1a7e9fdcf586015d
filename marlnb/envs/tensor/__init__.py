"""Batched environments: games written as pure functions on tensors, for CPU and GPU. Free of torch until built."""
