"""Edits that need the moment, patches between agents of one step, and edits of what agents see."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from marlnb.errors import ConfigError, ShapeError
from marlnb.models.hooks import episode_context
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.capture import capture
from marlnb.models.hooks.edit import Edit
from marlnb.models.hooks.edits import Ablate, Noise, Scale
from marlnb.models.hooks.edits_channel import BlockChannel, PermuteChannel, derangement
from marlnb.models.hooks.edits_patch import Patch
from marlnb.models.networks.by_agent import by_agent
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.models.policies.actor_critic import ActorCritic
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec
from tests.models.conftest import DISCRETE, make_spec

CASES = [(kind, share) for kind in ("mlp", "gru") for share in (True, False)]
EPISODE, T = torch.tensor([5, 6, -1, 7]), torch.tensor([0, 1, 2, 3])


def logits(policy: ActorCritic, observations: dict[str, Tensor]) -> Tensor:
    return policy.act(observations["walker"], explore=False).logits


@pytest.mark.parametrize(("window", "inside"), [(1, [1]), ((1, 3), [1, 2]), ((2, None), [2, 3]), ((None, 2), [0, 1])])
@pytest.mark.parametrize(("kind", "share"), CASES)
def test_an_edit_applies_only_inside_its_time_window(
    kind: str,
    share: bool,
    window: int | tuple[int | None, int | None],
    inside: list[int],
    build_policy: Callable[..., ActorCritic],
    observations: dict[str, Tensor],
) -> None:
    policy = build_policy(kind, share=share)
    before = logits(policy, observations)
    with edited(policy, [Ablate("*/actor/hidden_1")]):
        always = logits(policy, observations)
    with edited(policy, [Ablate("*/actor/hidden_1", t=window)]):
        with episode_context.at(EPISODE, T):
            after = logits(policy, observations)
        with pytest.raises(ConfigError, match="episode and step"):
            logits(policy, observations)
        with episode_context.at(EPISODE[:3], T[:3]), pytest.raises(ShapeError, match="3 environments"):
            logits(policy, observations)
    outside = [env for env in range(4) if env not in inside]
    assert torch.equal(after[inside], always[inside]) and torch.equal(after[outside], before[outside])
    assert not torch.equal(after[inside], before[inside])


@pytest.mark.parametrize(("kind", "share"), CASES)
def test_a_patch_from_another_agent_makes_the_two_alike(
    kind: str, share: bool, build_policy: Callable[..., ActorCritic], observations: dict[str, Tensor]
) -> None:
    """What follows the patched layer is the agent's own: equal logits where weights are shared."""
    policy = build_policy(kind, share=share)
    site = f"walker/actor/{'gru' if kind == 'gru' else 'hidden_2'}"
    before = logits(policy, observations)
    with edited(policy, [Patch(site, from_agents="walker_0", agents=("walker_2",))]), capture(policy, site) as seen:
        after = logits(policy, observations)
    assert torch.equal(seen[site][:, 2], seen[site][:, 0])
    assert torch.equal(after[:, :2], before[:, :2]) and not torch.equal(after[:, 2], before[:, 2])
    if share:
        torch.testing.assert_close(after[:, 2], before[:, 0])
    with edited(policy, [Patch(site, from_agents=("walker_0", "walker_1", "walker_2"))]):
        assert torch.equal(logits(policy, observations), before)  # each from itself


def test_agents_swap_in_one_patch(build_policy: Callable[..., ActorCritic], observations: dict[str, Tensor]) -> None:
    policy, site = build_policy(), "walker/actor/hidden_1"
    before = logits(policy, observations)
    with edited(policy, [Patch(site, from_agents=("walker_1", "walker_0"), agents=("walker_0", "walker_1"))]):
        after = logits(policy, observations)
    torch.testing.assert_close(after[:, [1, 0, 2]], before)


def test_networks_of_their_own_by_agent(observations: dict[str, Tensor]) -> None:
    torch.manual_seed(0)
    env = make_spec()
    model = by_agent(
        env.group("walker"), MLPConfig(hidden=(8,)), {"walker_1": GRUConfig(hidden=(8,), recurrent_size=4)}
    )
    policy = ActorCritic(env.group("walker"), env, model, MLPConfig(hidden=(8,)))
    before = logits(policy, observations)
    with edited(policy, [Ablate("walker/actor/walker_1/gru", 0.5)]):
        after = logits(policy, observations)
    assert torch.equal(after[:, [0, 2]], before[:, [0, 2]]) and not torch.equal(after[:, 1], before[:, 1])
    with edited(policy, [Patch("walker/actor/walker_2/hidden_1", from_agents="walker_0")]):  # 0 and 2 share a network
        after = logits(policy, observations)
    torch.testing.assert_close(after[:, 2], before[:, 0])
    with pytest.raises(ShapeError, match="do not share the module"):
        with edited(policy, [Patch("walker/actor/walker_1/hidden_1", from_agents="walker_0")]):
            pass


def test_an_edit_of_a_recurrent_state_persists(
    build_policy: Callable[..., ActorCritic], observations: dict[str, Tensor]
) -> None:
    """Edited at step 0 only, the state differs for good; what follows is what that state gives by itself."""
    policy = build_policy("gru")
    seen = observations["walker"]
    state: Tensor | None = None
    with edited(policy, [Ablate("walker/actor/gru", 0.25, agents=("walker_1",), t=0)]):
        for t in range(3):
            with episode_context.at(EPISODE, torch.full((4,), t)):
                output = policy.act(seen, recurrent=state, explore=False)
            if t == 0:
                assert output.recurrent is not None and (output.recurrent[:, 1] == 0.25).all()
                entering = output.recurrent
            state = output.recurrent
    for _ in range(2):
        entering = policy.act(seen, recurrent=entering, explore=False).recurrent
    assert state is not None and entering is not None and torch.equal(state, entering)


def test_what_agents_see_is_a_site_while_it_is_edited(
    build_policy: Callable[..., ActorCritic], observations: dict[str, Tensor]
) -> None:
    policy = build_policy(centralised=True)
    given = observations["walker"].clone()
    value = policy.value(observations)[0]
    with edited(policy, [Ablate("walker/observation", 2.0, units=(1, 4), agents=("walker_0",))]):
        after = logits(policy, observations)
        differentiable, _ = policy.logits(observations["walker"])
        assert torch.equal(policy.value(observations)[0], value)  # critics see what is there
    assert torch.equal(observations["walker"], given)
    changed = given.clone()
    changed[:, 0, [1, 4]] = 2.0
    expected = logits(policy, {"walker": changed})
    assert torch.equal(after, expected) and torch.equal(differentiable.detach(), expected)
    with edited(policy, [Scale("walker/observation", 1.0)]):
        assert torch.equal(logits(policy, observations), logits(policy, {"walker": given}))
    assert "act" not in policy.__dict__ and "logits" not in policy.__dict__


def test_images_keep_their_dtype() -> None:
    group = GroupSpec("eye", ("eye_0",), ObservationSpec((2, 2), "uint8"), DISCRETE)
    policy = ActorCritic(group, EnvSpec("test/eye", (group,)), MLPConfig(hidden=(4,)), MLPConfig(hidden=(4,)))
    seen = torch.arange(8, dtype=torch.uint8).reshape(2, 1, 2, 2) * 30
    with edited(policy, [Ablate("eye/observation", 255.0, units=(3,))]):
        after = policy.act(seen, explore=False).logits
    seen[..., 1, 1] = 255
    assert torch.equal(after, policy.act(seen, explore=False).logits)


def test_bools_stay_bools() -> None:
    group = GroupSpec("eye", ("eye_0",), ObservationSpec((3,), "bool"), DISCRETE)
    policy = ActorCritic(group, EnvSpec("test/eye", (group,)), MLPConfig(hidden=(4,)), MLPConfig(hidden=(4,)))
    seen = torch.tensor([[[True, True, False]], [[False, True, True]]])
    with edited(policy, [Ablate("eye/observation", units=(0,)), Ablate("eye/observation", 3.0, units=(2,))]):
        after, observed = policy.act(seen, explore=False).logits, policy.observe(seen)
    expected = torch.tensor([[[False, True, True]], [[False, True, True]]])
    assert observed.dtype == torch.bool and torch.equal(observed, expected)
    assert torch.equal(after, policy.act(expected, explore=False).logits)


def talker(features: int = 6) -> ActorCritic:
    names = ("x", "y", "message_0", "message_1", "other_message_0", "z")
    group = GroupSpec("ear", ("ear_0", "ear_1"), ObservationSpec((6,), names=names), ActionSpec("discrete", (3,)))
    torch.manual_seed(1)
    return ActorCritic(group, EnvSpec("test/ear", (group,)), MLPConfig(hidden=(8,)), MLPConfig(hidden=(8,)))


def test_channels_are_features_by_name() -> None:
    policy = talker()
    seen = torch.randn(5, 2, 6, generator=torch.Generator().manual_seed(0))
    changed = seen.clone()
    changed[..., [2, 3, 4]] = 0.0
    with edited(policy, [BlockChannel("ear")]):
        assert torch.equal(policy.act(seen, explore=False).logits, policy.act(changed, explore=False).logits)
        after = policy.act(seen, explore=False).logits
    assert torch.equal(after, policy.act(changed, explore=False).logits)
    changed = seen.clone()
    changed[:, 1, 2:4] = changed[derangement(5, 3), 1, 2:4]
    with edited(policy, [PermuteChannel("ear", units="message_*", agents=("ear_1",), seed=3)]):
        with episode_context.at(torch.arange(5), torch.zeros(5)):
            after = policy.act(seen, explore=False).logits
        with episode_context.at(torch.arange(1), torch.zeros(1)), pytest.raises(ConfigError, match="2 or more of them"):
            policy.act(seen[:1])
    assert torch.equal(after, policy.act(changed, explore=False).logits)
    with (
        pytest.raises(ShapeError, match=r"'mesage_\*'.*message_0"),
        edited(policy, [BlockChannel("ear", units="mesage_*")]),
    ):
        pass


def test_the_living_receive_messages_of_the_living() -> None:
    """Along the cycle of environments, the next one in which the agent is alive; its own if there is none."""
    policy, order = talker(), derangement(5, 3)
    seen = torch.randn(5, 2, 6, generator=torch.Generator().manual_seed(0))
    alive = torch.tensor([[1, 0], [0, 0], [1, 1], [0, 0], [1, 0]]).bool()
    changed = seen.clone()
    for env, agent in alive.nonzero().tolist():
        donor = int(order[env])
        while not alive[donor, agent]:
            donor = int(order[donor])
        changed[env, agent, 2:5] = seen[donor, agent, 2:5]
    assert torch.equal(changed[2, 1], seen[2, 1])  # alive nowhere else
    assert all(not torch.equal(changed[env, 0], seen[env, 0]) for env in (0, 2, 4))
    with edited(policy, [PermuteChannel("ear", seed=3)]):
        with episode_context.at(torch.arange(5), torch.zeros(5), {"ear": alive}):
            after = policy.act(seen, explore=False).logits
    assert torch.equal(after, policy.act(changed, explore=False).logits)


@pytest.mark.parametrize("n", [2, 3, 7])
def test_no_environment_receives_its_own_messages(n: int) -> None:
    orders = [derangement(n, seed) for seed in range(20)]
    assert all(sorted(order.tolist()) == list(range(n)) and (order != torch.arange(n)).all() for order in orders)


def test_noise_is_seeded_and_of_the_size_asked_for(
    build_policy: Callable[..., ActorCritic], observations: dict[str, Tensor]
) -> None:
    policy, site = build_policy(), "walker/actor/hidden_1"
    drawn = []
    for _ in range(2):
        with edited(policy, [Noise(site, 0.5, seed=3)]), capture(policy, site) as seen:
            logits(policy, observations)
        drawn.append(seen[site])
    with capture(policy, site) as seen:
        logits(policy, observations)
    noise = drawn[0] - seen[site]
    assert torch.equal(drawn[0], drawn[1]) and abs(float(noise.std()) - 0.5) < 0.08 and abs(float(noise.mean())) < 0.1


def test_noises_of_sites_and_edits_are_independent(observations: dict[str, Tensor]) -> None:
    torch.manual_seed(0)
    spec, model = make_spec(), MLPConfig(hidden=(8, 8))
    policy, sites = ActorCritic(spec.group("walker"), spec, model, model), "walker/actor/hidden_*"
    many = {"walker": observations["walker"].repeat(200, 1, 1)}

    def noise(n_edits: int) -> list[Tensor]:
        """At each site, the sum of what the edits add to zero."""
        edits = [Ablate(sites), *[Noise(sites, seed=3)] * n_edits]
        with edited(policy, edits), capture(policy, sites) as seen:
            logits(policy, many)
        return list(seen.values())

    one, both = noise(1), noise(2)
    drawn = [*one, *(total - first for total, first in zip(both, one, strict=True))]
    assert len(drawn) == 4
    correlation = torch.corrcoef(torch.stack(drawn).flatten(1))
    torch.testing.assert_close(correlation, torch.eye(4), atol=0.04, rtol=0.0)


def test_they_survive_json_and_wrong_ones_raise() -> None:
    edits: list[Edit] = [
        Patch("a/*", "recordings/a.h5", episode="other", shift=-2, t=(0, 5), digest="ab"),
        Patch("a/*", from_agents=["a_1", "a_0"], agents=("a_0", "a_1")),  # type: ignore[arg-type]
        BlockChannel("ear", value=0.5),
        PermuteChannel("ear", seed=4, t=3),
        Noise("b", 2.0, seed=1),
        Ablate("b", [1.0, 2.0], units=(3, 4)),  # type: ignore[arg-type]
        Ablate("b", "mean", source="recordings/b.h5", digest="cd"),
    ]
    for edit in edits:
        assert Edit.from_json(json.loads(json.dumps(edit.to_json()))) == edit
    for wrong in ({"from_agents": ("a_0",), "at": 3}, {}, {"source": "x", "episode": "next"}):
        with pytest.raises(ConfigError):
            Patch("a/*", **wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="window"):
        Scale("a", t=(3, 3))
