"""A simulator with a loop of its own: `signal` names the symbol that it sees, then `mirror` the one after it.

Each right answer earns 1, so the best return of an episode is ROUNDS for either. Usage: this file, the run's folder,
the number of episodes (0: until the training is over), and optionally seconds that each episode takes.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress

import numpy as np

from marlnb.client import Client, Episode, EpisodeOver, ServerGone

SYMBOLS, ROUNDS = 3, 4


def play(episode: Episode, pause_s: float = 0.0) -> None:
    draws = np.random.default_rng(episode.seed).integers(SYMBOLS, size=ROUNDS)
    for symbol in draws:
        seen = np.eye(SYMBOLS)[symbol]
        answer = episode.act({"signal_0": seen})["signal_0"]
        episode.reward({"signal_0": float(answer == symbol)})
        answer = episode.act({"mirror_0": seen})["mirror_0"]
        episode.reward({"mirror_0": float(answer == (symbol + 1) % SYMBOLS)})
        time.sleep(pause_s)
    episode.end()


def main(folder: str, episodes: int, pause_s: float) -> None:
    with Client.connect(folder) as client, suppress(ServerGone):
        played = 0
        while not episodes or played < episodes:
            with suppress(EpisodeOver):
                play(client.begin_episode(), pause_s)
            played += 1


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 0.0)
