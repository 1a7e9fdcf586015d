"""Philox against Random123's known answers, and draws that depend on nothing but their counter."""

from __future__ import annotations

import pytest
import torch

from marlnb.envs.tensor.philox import Draws, philox, to_unit_interval

ONES = 0xFFFFFFFF
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (*PI, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ],
)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, int], words: tuple[int, ...]) -> None:
    """Random123 1.14.0, tests/kat_vectors, philox4x32 10."""
    got = philox(tuple(map(torch.tensor, counter)), tuple(map(torch.tensor, key)))  # type: ignore[arg-type]
    assert tuple(map(int, got)) == words


def test_numbers_of_an_agent_are_the_words_of_its_counter() -> None:
    """Seed 5, time step 7, agent 2, second call, number 6: word 2 of the counter (1, 2, 7, 1) with the key (5, 0)."""
    draw = Draws(torch.tensor([3, 5]), 7)
    draw.uniform()
    words = philox(tuple(map(torch.tensor, (1, 2, 7, 1))), (torch.tensor(5), torch.tensor(0)))  # type: ignore[arg-type]
    assert draw.uniform(3, 8)[1, 2, 6] == to_unit_interval(words[2])


def test_draws_of_an_env_do_not_depend_on_the_others() -> None:
    seeds = torch.arange(64) * 1000
    many, single = Draws(seeds, 3).uniform(5, 2), Draws(seeds[17:18], 3).uniform(5, 2)
    assert torch.equal(many[17], single[0])
    assert torch.unique(many).numel() == many.numel()  # 640 of 2**24 numbers


def test_draws_are_uniform() -> None:
    draw = Draws(torch.arange(1000))
    numbers = draw.uniform(100)
    assert numbers.min() >= 0 and numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 4 * (1 / 12) ** 0.5 / 100_000**0.5
    counts = torch.bincount(draw.integers(7, 100).flatten(), minlength=7)
    assert counts.numel() == 7 and (counts - 100_000 / 7).abs().max() < 5 * (100_000 / 7) ** 0.5
