from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from marlnb.errors import ConfigError, ShapeError, SiteError
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.capture import capture
from marlnb.models.hooks.directions import Clamp, Direction, Raise, Steer
from marlnb.models.hooks.edit import EDITS, Edit
from marlnb.models.hooks.edits import Ablate, Noise, Scale
from marlnb.models.hooks.edits_patch import Patch
from marlnb.models.policies.actor_critic import ActorCritic

CASES = [(kind, share) for kind in ("mlp", "gru") for share in (True, False)]


ALONG = Direction("a/b", "a_0", (1.0, 0.0), 0.5, 2.0)


def logits(policy: ActorCritic, observations: dict[str, Tensor]) -> Tensor:
    return policy.act(observations["walker"], explore=False).logits


@pytest.mark.parametrize(("kind", "share"), CASES)
def test_an_identity_edit_changes_nothing_bit_for_bit(
    kind: str, share: bool, build_policy: Callable[..., ActorCritic], observations: dict[str, Tensor]
) -> None:
    policy = build_policy(kind, share=share, centralised=True)
    before, value = logits(policy, observations), policy.value(observations)[0]
    with edited(policy, [Scale("*", factor=1.0), Ablate("*", units=())]):
        assert torch.equal(logits(policy, observations), before)
        assert torch.equal(policy.value(observations)[0], value)


@pytest.mark.parametrize(("kind", "share"), CASES)
def test_ablating_one_agent_leaves_the_others_as_they_were(
    kind: str, share: bool, build_policy: Callable[..., ActorCritic], observations: dict[str, Tensor]
) -> None:
    policy = build_policy(kind, share=share)
    before = logits(policy, observations)
    with edited({"walker": policy}, [Ablate("walker/actor/hidden_1", agents=["walker_1"])]):
        after = logits(policy, observations)
    assert torch.equal(after[:, [0, 2]], before[:, [0, 2]])
    assert not torch.equal(after[:, 1], before[:, 1])
    assert torch.equal(logits(policy, observations), before)


def test_ablated_units_hold_the_value_and_capture_sees_it(
    build_policy: Callable[..., ActorCritic], observations: dict[str, Tensor]
) -> None:
    policy = build_policy()
    edits = [Ablate("*/hidden_1", units=(3, 7), value=0.25), Ablate("*/hidden_1", units=(7,), agents=(0,))]
    for order in ("edit first", "capture first"):
        outer, inner = edited(policy, edits), capture(policy, "*/hidden_1")
        if order == "capture first":
            with inner as seen, outer:
                logits(policy, observations)
        else:
            with outer, inner as seen:
                logits(policy, observations)
        activation = seen["walker/actor/hidden_1"]
        assert (activation[..., 3] == 0.25).all()
        assert (activation[:, 0, 7] == 0).all() and (activation[:, 1:, 7] == 0.25).all()


def test_ablating_the_whole_last_layer_leaves_the_bias(
    build_policy: Callable[..., ActorCritic], observations: dict[str, Tensor]
) -> None:
    policy = build_policy()
    with torch.no_grad():
        policy.actor.network.head.bias.copy_(torch.arange(5.0))  # type: ignore[union-attr, operator]
    with edited(policy, [Ablate("*/actor/hidden_2")]):
        assert torch.equal(logits(policy, observations), torch.arange(5.0).expand(4, 3, 5))


def test_an_edit_of_a_recurrent_site_is_the_state_that_leaves(
    build_policy: Callable[..., ActorCritic], observations: dict[str, Tensor]
) -> None:
    policy = build_policy("gru")
    with edited(policy, [Ablate("*/actor/gru", units=(2,), value=0.5)]):
        recurrent = policy.act(observations["walker"]).recurrent
    assert recurrent is not None and (recurrent[..., 2] == 0.5).all()


def test_no_hook_is_left_after_an_exception(build_policy: Callable[..., ActorCritic]) -> None:
    policy = build_policy()
    with pytest.raises(KeyboardInterrupt), edited(policy, [Ablate("*")]):
        raise KeyboardInterrupt
    assert not any(module._forward_hooks for module in policy.modules())


@pytest.mark.parametrize(
    ("edit", "error", "says"),
    [
        (Ablate("walker/actor/hiden_1"), SiteError, "walker/actor/hidden_1"),
        (Ablate("*/hidden_1", units=(16,)), ShapeError, "no unit 16 .* 0 to 15"),
        (Ablate("*/hidden_1", units=(-1,)), ShapeError, "0 to 15"),
        (Ablate("*/hidden_1", agents=(3,)), ShapeError, "0 to 2, walker_0, walker_1, walker_2"),
        (Ablate("*/hidden_1", agents=("walker_9",)), ShapeError, "walker_0"),
        (Ablate("*/critic/hidden_1", agents=("walker_0",)), ShapeError, "one forward pass for all"),
    ],
)
def test_what_a_policy_does_not_have_raises_by_name(
    edit: Edit, error: type[Exception], says: str, build_policy: Callable[..., ActorCritic]
) -> None:
    policy = build_policy(centralised=True)
    with pytest.raises(error, match=says), edited(policy, [Scale("*"), edit]):
        pass
    assert not any(module._forward_hooks for module in policy.modules())


MASK = np.array([False, True, False, True])


@pytest.mark.parametrize("mask", [MASK, MASK.tolist(), torch.from_numpy(MASK)])
@pytest.mark.parametrize("name", ["units", "agents"])
def test_a_mask_is_an_error_that_names_its_indices(name: str, mask: object) -> None:
    with pytest.raises(ConfigError, match=rf"{name}= .* indices or names; got False\. np\.flatnonzero\(mask\) gives"):
        Ablate("*", **{name: mask})  # type: ignore[arg-type]


def test_numbers_of_numpy_and_torch_are_those_of_python() -> None:
    cases = [
        (Ablate("*", units=np.flatnonzero(MASK)), Ablate("*", units=(1, 3))),
        (Ablate("*", units=torch.from_numpy(MASK).nonzero()[:, 0]), Ablate("*", units=(1, 3))),
        (Ablate("*", units=torch.tensor(2), t=np.int64(3)), Ablate("*", units=(2,), t=3)),
        (Ablate("*", units={np.int64(2)}, agents=np.array(["a_0"])), Ablate("*", units=(2,), agents=("a_0",))),
        (Ablate("*", np.float32(0.5), t=(np.int64(1), None)), Ablate("*", 0.5, t=(1, None))),
        (Ablate("*", torch.arange(2.0), units=np.int64(1)), Ablate("*", (0.0, 1.0), units=(1,))),
        (Patch("*", from_agents=np.array(["a_0"]), shift=np.int8(0)), Patch("*", from_agents=("a_0",))),
        (Steer("*", replace(ALONG, mean=np.float32(0.5)), np.float32(2)), Steer("*", ALONG, 2.0)),
    ]
    for edit, expected in cases:
        assert edit == expected
        assert json.dumps(edit.to_json()) == json.dumps(expected.to_json())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda number: Scale("*", number), "factor= of Scale"),
        (lambda number: Ablate("*", number), "value= of Ablate"),
        (lambda number: Ablate("*", [0.0, number]), "value= of Ablate"),  # type: ignore[arg-type]
        (lambda number: Noise("*", number), "scale= of Noise"),
        (lambda number: Clamp("*", number), "value= of Clamp"),
        (lambda number: Raise("*", number, ALONG), "value= of Raise"),
        (lambda number: Steer("*", ALONG, number), "strength= of Steer"),
        (lambda number: Scale("*").at_strength(number), "factor= of Scale"),
        (lambda number: replace(ALONG, mean=number), "mean= of a direction"),
        (lambda number: Edit.from_json({"edit": "scale", "site": "*", "factor": number}), "factor= of Scale"),
    ],
)
def test_numbers_of_an_edit_are_finite(make: Callable[[Any], object], message: str) -> None:
    for number in (float("nan"), float("inf"), -np.inf, np.float32("nan"), None, True, 1j):
        with pytest.raises(ConfigError, match=rf"{message} must be a (finite )?number; got"):
            make(number)
    with pytest.raises(ConfigError, match=r"factor= of Scale must be a number; got '2'"):
        Scale("*", "2")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"scale= of Noise must be at least 0; got -1"):
        Noise("*", -1)
    with pytest.raises(ShapeError, match=r"has length 1; .* has nan"):
        replace(ALONG, vector=(float("nan"), 1.0))


def test_an_edit_survives_json() -> None:
    for edit in (Ablate("a/*", units=[1, 2], agents=["a_0", 1], value=0.5), Ablate("b"), Scale("c", units=4, factor=2)):  # type: ignore[arg-type]
        assert Edit.from_json(json.loads(json.dumps(edit.to_json()))) == edit
    assert {"ablate", "clamp", "erase", "noise", "scale", "steer"} <= set(EDITS.names())
    with pytest.raises(ConfigError, match="units"):
        Edit.from_json({"edit": "ablate", "site": "*", "unit": 3})
    with pytest.raises(ConfigError, match="ablate"):
        Edit.from_json({"edit": "ablat", "site": "*"})
    with pytest.raises(ConfigError, match="source="):
        Ablate("*", value="mean")  # type: ignore[arg-type]
