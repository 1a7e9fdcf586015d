"""Philox: random numbers as a pure function of a counter and a key, the same on every device.

torch has no such function of its own: its generators have a state. Integer arithmetic on int64 tensors that hold
unsigned 32-bit words gives the same bits on a CPU and on a GPU, and CUDA graphs need no generator to be registered.
"""

from __future__ import annotations

import torch
from torch import Tensor

N_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_WORD = 0xFFFFFFFF

Words = tuple[Tensor, Tensor, Tensor, Tensor]


def philox(counter: Words, key: tuple[Tensor, Tensor]) -> Words:
    """Philox4x32-10: four random words for each counter.

    Args:
        counter: four words, int64 in `[0, 2**32)`; they broadcast with each other and with the key.
        key: two words.
    Returns:
        four words, int64 in `[0, 2**32)`, of the broadcast shape.
    Source: Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3. The tests have Random123's known answers.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(N_ROUNDS):
        high_0, low_0 = _product(c0, _MULTIPLIERS[0])
        high_1, low_1 = _product(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high_1 ^ c1 ^ k0, low_1, high_0 ^ c3 ^ k1, low_0
        k0, k1 = (k0 + _KEY_STEPS[0]) & _WORD, (k1 + _KEY_STEPS[1]) & _WORD
    return c0, c1, c2, c3


def to_unit_interval(words: Tensor) -> Tensor:
    """float32 in `[0, 1)`: the upper 24 of 32 bits, which float32 holds exactly."""
    return (words >> 8).float() * 2.0**-24


def _product(word: Tensor, multiplier: int) -> tuple[Tensor, Tensor]:
    """The upper and the lower word of a 64-bit product; int64 wraps around, which leaves all 64 bits right."""
    product = word * multiplier
    return (product >> 32) & _WORD, product & _WORD


class Draws:
    """Random numbers of one time step of every env: a function of the episode's seed, the time step, the agent and the
    number of the call. An env draws the same numbers alone and among others, on a CPU and on a GPU.

    Attributes:
        seed: `[env]` int64, the seed of each env's episode.
        step: `[env]` int64, 0 for the initial state.
    """

    def __init__(self, seed: Tensor, step: Tensor | int = 0) -> None:
        """
        Args:
            seed: `[env]` int64.
            step: `[env]` int64: 0 for the initial state, t + 1 for the step that follows time step t.
        """
        self.seed = seed
        self.step = step if isinstance(step, Tensor) else torch.full_like(seed, step)
        self._n_calls = 0

    @property
    def n_envs(self) -> int:
        return len(self.seed)

    @property
    def device(self) -> torch.device:
        return self.seed.device

    def uniform(self, *shape: int) -> Tensor:
        """Uniform in `[0, 1)`: `[env, *shape]` float32. The first axis of `shape` counts agents.

        Number j of agent i is word j mod 4 of the counter (j // 4, i, time step, number of the call).
        """
        return to_unit_interval(self._words(shape))

    def integers(self, n: int, *shape: int) -> Tensor:
        """Uniform in 0 to n - 1: `[env, *shape]` int64, for n up to `2**24`: floor(n u), u as `uniform` draws it."""
        return (self._words(shape) >> 8) * n >> 24

    def _words(self, shape: tuple[int, ...]) -> Tensor:
        n_agents, rest = (shape[0], shape[1:]) if shape else (1, ())
        n_numbers = torch.Size(rest).numel()
        n_blocks = -(-n_numbers // 4)
        block = torch.arange(n_blocks, device=self.device)
        agent = torch.arange(n_agents, device=self.device)[:, None]
        call = torch.full_like(block, self._n_calls)
        seed = self.seed[:, None, None]
        words = philox((block, agent, self.step[:, None, None], call), (seed & _WORD, (seed >> 32) & _WORD))
        self._n_calls += 1
        return torch.stack(words, -1).flatten(2)[..., :n_numbers].reshape(self.n_envs, *shape)
