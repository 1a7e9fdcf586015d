"""The counter-based numbers, against splitmix64 in Python's integers."""

from __future__ import annotations

import torch

from marlnb.envs.mpe.draws import uniform

MASK = 2**64 - 1
GAMMA = 0x9E3779B97F4A7C15


def splitmix64_mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_the_reference_is_splitmix64() -> None:
    """The first outputs of the published generator for seed 1234567."""
    state, outputs = 1234567, []
    for _ in range(2):
        state = (state + GAMMA) & MASK
        outputs.append(splitmix64_mix(state))
    assert outputs == [6457827717110365317, 3203168211198807973]


def test_numbers_equal_those_of_integers() -> None:
    seeds = [0, 1, 17, 2**31 - 1]
    drawn = uniform(torch.tensor(seeds), 5)
    for column, seed in enumerate(seeds):
        start = splitmix64_mix((seed + GAMMA) & MASK)
        expected = [(splitmix64_mix((start + k * GAMMA) & MASK) >> 11) * 2.0**-53 for k in range(1, 6)]
        assert drawn[:, column].tolist() == expected


def test_neighbouring_seeds_are_independent() -> None:
    drawn = uniform(torch.arange(50_000), 2)
    both = torch.stack([drawn[0, :-1], drawn[0, 1:], drawn[1, :-1]])
    assert (torch.corrcoef(both) - torch.eye(3)).abs().max() < 5 / 50_000**0.5
    assert torch.histc(drawn.float(), 10, 0, 1).sub(10_000).abs().max() < 5 * 9000**0.5
