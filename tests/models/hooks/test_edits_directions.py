"""Steering and erasing against arithmetic done by hand, and numpy's least squares."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from marlnb.errors import ConfigError, ShapeError
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.capture import capture
from marlnb.models.hooks.directions import Direction, Erase, Raise, Steer
from marlnb.models.hooks.edit import Edit
from marlnb.models.policies.actor_critic import ActorCritic

SITE = "walker/actor/hidden_2"  # 8 units


def direction(seed: int = 0, *, mean: float = 0.3, scale: float = 2.0) -> Direction:
    vector = np.random.default_rng(seed).standard_normal(8)
    return Direction(SITE, "walker_1", tuple(vector / np.linalg.norm(vector)), mean, scale, "planted")


def seen(policy: ActorCritic, observations: dict[str, Tensor], edits: list[Edit]) -> tuple[Tensor, Tensor]:
    """The activation at SITE and the logits."""
    with edited(policy, edits), capture(policy, SITE) as activations:
        logits = policy.act(observations["walker"], explore=False).logits
    return activations[SITE], logits


@pytest.mark.parametrize("share", [True, False])
def test_steering_moves_the_logits_by_the_head_times_the_step(
    share: bool, build_policy: Callable[..., ActorCritic], observations: dict[str, Tensor]
) -> None:
    """The head is linear: logits move by W (strength * scale * v), for the agent steered and no other."""
    policy, along = build_policy(share=share), direction()
    before, logits = seen(policy, observations, [])
    after, moved = seen(policy, observations, [along.steer(1.5)])
    head = policy.actor.network.head.weight  # type: ignore[union-attr]
    weight = (head if share else head[1]).detach().double()  # type: ignore[index]
    expected = weight @ (1.5 * 2.0 * torch.tensor(along.vector, dtype=torch.float64))
    torch.testing.assert_close((moved - logits)[:, 1].double(), expected.expand(4, 5), atol=1e-6, rtol=0)
    assert torch.equal(moved[:, [0, 2]], logits[:, [0, 2]]) and torch.equal(after[:, [0, 2]], before[:, [0, 2]])
    torch.testing.assert_close((after - before)[:, 1], torch.tensor(along.vector).expand(4, 8) * 3.0)


def test_a_dose_of_nothing_changes_nothing_bit_for_bit(
    build_policy: Callable[..., ActorCritic], observations: dict[str, Tensor]
) -> None:
    policy = build_policy()
    for before, after in zip(seen(policy, observations, []), seen(policy, observations, [direction().steer(0.0)])):
        assert torch.equal(before, after)


@pytest.mark.parametrize("keep_mean", [True, False])
def test_what_is_erased_is_gone_and_the_rest_is_as_it_was(
    keep_mean: bool, build_policy: Callable[..., ActorCritic], observations: dict[str, Tensor]
) -> None:
    policy = build_policy()
    several = (direction(1), direction(2, mean=-0.5))
    before, _ = seen(policy, observations, [])
    after, _ = seen(policy, observations, [Erase(SITE, several, keep_mean, agents=("walker_1",))])
    matrix = np.array([each.vector for each in several])
    x = before[:, 1].double().numpy()
    means = np.array([0.3, -0.5]) if keep_mean else np.zeros(2)
    # the nearest point to x at which both projections are the means: numpy's least squares of least norm
    expected = x - np.array([np.linalg.lstsq(matrix, matrix @ row - means, rcond=None)[0] for row in x])
    np.testing.assert_allclose(after[:, 1].numpy(), expected, atol=1e-6)
    np.testing.assert_allclose(after[:, 1].numpy() @ matrix.T, np.tile(means, (4, 1)), atol=1e-6)
    assert torch.equal(after[:, [0, 2]], before[:, [0, 2]])


def test_raising_moves_only_what_is_below_and_a_control_moves_it_by_the_same_lengths(
    build_policy: Callable[..., ActorCritic], observations: dict[str, Tensor]
) -> None:
    policy, up, along = build_policy(), direction(1), direction(2)
    before, _ = seen(policy, observations, [])
    x, vector = before[:, 1].double().numpy(), np.array(up.vector)
    value = float(np.median(x @ vector))
    missing = np.maximum(value - x @ vector, 0)
    assert (missing > 0).any() and (missing == 0).any()
    for control, path in ((None, vector), (along, np.array(along.vector))):
        after, _ = seen(policy, observations, [Raise(SITE, value, up, control, agents=("walker_1",))])
        np.testing.assert_allclose(after[:, 1].numpy(), x + missing[:, None] * path, atol=1e-6)
        assert torch.equal(after[:, [0, 2]], before[:, [0, 2]])
    edit = Raise(SITE, value, up, along, t=2)
    assert Edit.from_json(json.loads(json.dumps(edit.to_json()))) == edit
    with pytest.raises(ConfigError, match="Raise needs a Direction"):
        Raise(SITE, value)


def test_one_line_steers_erases_and_clamps(
    build_policy: Callable[..., ActorCritic], observations: dict[str, Tensor]
) -> None:
    policy, along = build_policy(), direction()
    assert along.steer(2.0) == Steer(SITE, along, 2.0, agents=("walker_1",))
    assert along.erase() == Erase(SITE, along, agents=("walker_1",))  # type: ignore[arg-type]
    assert along.steer(2.0, agents=None).agents is None and along.steer(1, agents="walker_0").agents == ("walker_0",)
    after, _ = seen(policy, observations, [along.clamp(-1.0)])
    np.testing.assert_allclose(after[:, 1].numpy() @ np.array(along.vector), np.full(4, 0.3 - 2.0), atol=1e-6)
    assert along.steer(1.0).at_strength(-3.0) == along.steer(-3.0)


def test_directions_survive_json_and_misfits_raise(build_policy: Callable[..., ActorCritic]) -> None:
    along = direction()
    for edit in (along.steer(2.0, t=(3, None)), Erase(SITE, (along, direction(1))), along.clamp(1.0, t=4)):
        assert Edit.from_json(json.loads(json.dumps(edit.to_json()))) == edit
    with pytest.raises(ConfigError, match="needs a Direction"):
        Steer(SITE)
    for wrong in (np.zeros(8), [0.6, -0.8], "goal"):
        for make in (Steer, Erase):
            with pytest.raises(ConfigError, match=r"expected a Direction, as decoding\.direction\(\) returns; got"):
                make(SITE, wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="did you mean 'scale'"):
        Steer(SITE, {**along.to_json(), "scal": 1.0})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no strength"):
        along.erase().at_strength(2.0)
    policy = build_policy()
    with (
        pytest.raises(ShapeError, match="8 units; the edit covers 16 units"),
        edited(policy, [Steer("*/actor/hidden_1", along)]),
    ):
        pass
    assert not any(module._forward_hooks for module in policy.modules())


def test_a_direction_is_saved_and_read_back() -> None:
    direction = Direction("a/actor/hidden_1", "a_0", (0.6, -0.8), 0.1, 2.0, "goal")
    text = json.dumps(direction.to_json())
    assert Direction.from_json(json.loads(text)) == direction
    with pytest.raises(ConfigError, match="did you mean 'scale'"):
        Direction.from_json({**direction.to_json(), "scal": 1.0})
    with pytest.raises(ConfigError, match=r"missing: \['vector'\]"):
        Direction.from_json({name: value for name, value in direction.to_json().items() if name != "vector"})
    with pytest.raises(ShapeError, match="length 1"):
        Direction.from_json({**direction.to_json(), "vector": [3.0, 4.0]})
