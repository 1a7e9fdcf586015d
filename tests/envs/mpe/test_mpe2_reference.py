"""Pictures are mpe2's own, but for the messages: the same pixels for the same state, reached by mpe2 itself."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import torch

from marlnb.config import ENVIRONMENTS
from marlnb.envs.mpe.mpe2_reference import messages
from tests.envs.mpe.worlds import rules_of, world_of

MOVES = [1, 4, 4, 2, 0, 3]


def _goal(raw: Any, agent: int, name: str) -> int:
    return next(
        i for i, landmark in enumerate(raw.world.landmarks) if landmark is getattr(raw.world.agents[agent], name)
    )


def _choices(scenario: str, raw: Any) -> dict[str, int]:
    """What mpe2 drew, read off its objects."""
    if scenario == "simple_speaker_listener":
        return {"goal": _goal(raw, 0, "goal_b")}
    if scenario == "simple_reference":
        return {"told_by_0": _goal(raw, 0, "goal_b"), "told_by_1": _goal(raw, 1, "goal_b")}
    if scenario in ("simple_adversary", "simple_push"):
        return {"goal": _goal(raw, 0, "goal_a")}
    if scenario == "simple_crypto":
        return {"goal": _goal(raw, 0, "goal_a"), "key": int(raw.world.agents[2].key.argmax())}
    return {}


@pytest.mark.parametrize(
    "scenario",
    ["simple", "simple_spread", "simple_speaker_listener", "simple_reference", "simple_tag", "simple_adversary"]
    + ["simple_push", "simple_crypto", "simple_world_comm"],
)
def test_the_same_pixels_as_mpe2(scenario: str) -> None:
    config = ENVIRONMENTS.get(f"mpe/{scenario}")(dtype="float64")
    raw = importlib.import_module(config.mpe2_module).raw_env(render_mode="rgb_array")
    raw.reset(seed=5)
    env = config.build(2)
    env.reset(seed=0)
    positions = torch.tensor(np.array([entity.state.p_pos for entity in raw.world.entities])).t()[:, :, None]
    chosen = {name: torch.tensor([value]) for name, value in _choices(scenario, raw).items()}
    rules, world = rules_of(env), world_of(env)
    world.place(positions.expand(-1, -1, 2), {name: value.expand(2) for name, value in chosen.items()})
    env.state.update(world.choice)
    rules.scenario.begin(world)
    world.measure()
    n_speakers = len(rules.scenario.speakers)
    above = slice(0, 650 - 45 * n_speakers if n_speakers else None)  # the messages, whose words differ
    np.testing.assert_array_equal(env.render(1)[above], raw.render()[above])
    for move in MOVES:
        actions = {g.name: torch.full((2, g.n_agents), move % g.action.n[0]) for g in env.spec.groups}
        env.step(actions)
        for group in env.spec.groups:
            for action in actions[group.name][1]:
                raw.step(int(action))
        picture = env.render(1)
        assert picture.shape == (700, 700, 3) and picture.dtype == np.uint8
        np.testing.assert_array_equal(picture[above], raw.render()[above])
    assert (picture != 255).any()


def test_a_message_has_the_name_of_its_action() -> None:
    env = ENVIRONMENTS.get("mpe/simple_speaker_listener")().build(2)
    env.reset(seed=0)
    before = env.render(1)
    assert messages(rules_of(env).scenario, world_of(env), 1, False) == ["speaker_0: silent"]
    env.step({"speaker": torch.tensor([[0], [2]]), "listener": torch.zeros(2, 1, dtype=torch.long)})
    name = env.spec.group("speaker").action.names[2]
    assert messages(rules_of(env).scenario, world_of(env), 1, False) == [f"speaker_0: {name}"] == ["speaker_0: say_2"]
    written = (before != env.render(1)).any(-1)
    assert written[650:].any()
