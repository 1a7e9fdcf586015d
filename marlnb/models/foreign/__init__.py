"""Policies made elsewhere, given sites: any module, torchrl's multi-agent networks, BenchMARL's and SB3's."""
