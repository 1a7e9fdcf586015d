"""Recordings of turn-based runs: who acted at each row, and states that wait with their agents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from marlnb.config import ENVIRONMENTS
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.recording.capture.recorder import record
from tests.recording.runs import make_run


@pytest.mark.parametrize("share", [True, False])
def test_what_each_player_made_of_its_own_turns(tmp_path: Path, share: bool) -> None:
    """Values and entering states at a player's turns are those of its own turns alone, run one after the other."""
    env = ENVIRONMENTS.get("pettingzoo/tictactoe")(workers=0)
    model = GRUConfig(hidden=(8,), recurrent_size=4, share_parameters=share)
    run = make_run(tmp_path / "run", env, model, centralised=False)
    policy = run.policies()["player"]
    with record(run, sites="*", episodes=3, n_envs=2, seed=3, explore=True, progress=False) as recording:
        for number in recording.episodes.index:
            for seat, agent in enumerate(("player_1", "player_2")):
                picked = {"agent": agent, "episode": number}
                acting = recording.steps("player", "acting").sel(**picked).to_numpy().astype(bool)
                assert acting.tolist() == [t % 2 == seat for t in range(len(acting))]
                observations = torch.tensor(recording.steps("player", "observation").sel(**picked).to_numpy()[acting])
                values = recording.steps("player", "value").sel(**picked).to_numpy()[acting]
                entering = recording.recurrent("player").sel(**picked).to_numpy()[acting]
                state, memory = torch.zeros(1, 2, 1, 4), torch.zeros(1, 2, 1, 4)
                for turn in range(len(observations)):
                    both = {"player": observations[turn].float().expand(1, 2, 3, 3, 2)}
                    np.testing.assert_allclose(entering[turn].reshape(-1), state[0, seat, 0], atol=1e-5)
                    with torch.no_grad():
                        value, memory = policy.value(both, recurrent=memory)  # type: ignore[assignment]
                    np.testing.assert_allclose(values[turn], value[0, seat], atol=1e-5)
                    state = policy.act(both["player"], recurrent=state).recurrent  # type: ignore[assignment]
