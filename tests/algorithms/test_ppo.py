"""Learners against problems whose answers are known, made by hand as rollouts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from marlnb.algorithms.configs.ppo import IPPOConfig, MAPPOConfig
from marlnb.algorithms.ppo import PolicyGradientLearner
from marlnb.config import ALGORITHMS, AlgorithmConfig, LearnerContext, ModelConfig
from marlnb.errors import CheckpointError, ConfigError
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec

DISCRETE = ActionSpec("discrete", n=(5,))
CONTINUOUS = ActionSpec("continuous", low=(-2.0,), high=(2.0,))
SMALL: dict[str, ModelConfig] = {"mlp": MLPConfig(hidden=(16,)), "gru": GRUConfig(hidden=(16,), recurrent_size=8)}


def build(
    config: AlgorithmConfig, env: EnvSpec, model: ModelConfig, group: str = "a", *, n_envs: int, steps: int
) -> Any:
    torch.manual_seed(0)
    return config.build(LearnerContext(env.group(group), env, model, model, n_envs, steps))


def probe_env(action: ActionSpec) -> EnvSpec:
    """Group a of 2 agents with one feature, group b of 1 with one."""
    return EnvSpec(
        "test/probe",
        (
            GroupSpec("a", ("a_0", "a_1"), ObservationSpec((1,)), action),
            GroupSpec("b", ("b_0",), ObservationSpec((1,)), ActionSpec("discrete", n=(2,))),
        ),
    )


def experience(
    learner: PolicyGradientLearner,
    observe: Callable[[int], dict[str, Tensor]],
    reward: Callable[[int, dict[str, Tensor], Tensor], Tensor],
    *,
    steps: int,
    ending: str = "terminated",
    length: int = 1,
) -> TensorDict:
    """Episodes of `length` steps, all ended the same way, of group a acting and group b only seen.

    observe(t): observations by group `[env, agent, 1]`; reward(t, observations, action): `[env, agent]`.
    """
    observations = [observe(t) for t in range(steps + 1)]
    n_envs = observations[0]["a"].shape[0]
    rollout = TensorDict({}, [n_envs, steps])
    t = torch.arange(steps)
    rollout["is_init"] = (t % length == 0).expand(n_envs, steps).unsqueeze(-1).clone()
    done = (t % length == length - 1).expand(n_envs, steps).unsqueeze(-1).clone()
    rollout["next", "done"] = done
    for name in ("a", "b"):
        observation = torch.stack([time_step[name] for time_step in observations], 1)
        rollout[name, "observation"], rollout["next", name, "observation"] = observation[:, :-1], observation[:, 1:]
    recurrent, rows = learner.policy.initial_recurrent(n_envs, "cpu"), []
    for k in range(steps):
        if recurrent is not None:
            recurrent = torch.where(rollout["is_init"][:, k, :, None, None], 0.0, recurrent)
        output = learner.policy.act(observations[k]["a"], recurrent=recurrent)
        row = {"action": output.action, "log_prob": output.log_prob, **output.extras}
        row["reward"] = reward(k, observations[k], output.action)
        rows.append(row | ({} if recurrent is None else {"recurrent": recurrent}))
        recurrent = output.recurrent
    for key in rows[0]:
        value = torch.stack([row[key] for row in rows], 1)
        if key == "reward":
            rollout["next", "a", "reward"] = value.unsqueeze(-1)
        else:
            rollout["a", key] = value
    rollout["a", "alive"] = rollout["a", "acting"] = torch.ones(n_envs, steps, 2, dtype=torch.bool)
    ended = done[:, :, None, :].expand(n_envs, steps, 2, 1)
    for name in ("terminated", "truncated"):
        rollout["next", "a", name] = ended.clone() if name == ending else torch.zeros_like(ended)
    rollout["next", "a", "done"] = ended.clone()
    rollout["next", "b", "terminated"] = rollout["next", "a", "terminated"][:, :, :1]
    return rollout


def ones(t: int) -> dict[str, Tensor]:
    return {"a": torch.ones(32, 2, 1), "b": torch.ones(32, 1, 1)}


def signs(t: int) -> dict[str, Tensor]:
    return {name: torch.randint(2, (32, n, 1)) * 2.0 - 1 for name, n in (("a", 2), ("b", 1))}


@pytest.mark.parametrize(
    "config", [IPPOConfig(lr=0.01, gamma=0.9), MAPPOConfig(lr=0.01, gamma=0.9)], ids=lambda c: c.name
)
@pytest.mark.parametrize(("ending", "value"), [("terminated", 3.0), ("truncated", 30.0)])
def test_values_converge_and_only_truncation_is_bootstrapped(config: IPPOConfig, ending: str, value: float) -> None:
    """One-step episodes of reward 3: worth 3 when they terminate, 3 / (1 - 0.9) when they are only cut short."""
    learner = build(config, probe_env(DISCRETE), SMALL["mlp"], n_envs=32, steps=8)
    for _ in range(100 if ending == "truncated" else 15):
        learner.update(
            experience(learner, ones, lambda t, seen, action: torch.full((32, 2), 3.0), steps=8, ending=ending)
        )
    assert learner.policy.value(ones(0))[0].mean().item() == pytest.approx(value, rel=0.04)


@pytest.mark.parametrize("config", [IPPOConfig(lr=0.01), MAPPOConfig(lr=0.01)], ids=lambda c: c.name)
@pytest.mark.parametrize("share", [True, False])
def test_it_learns_the_action_that_fits_the_observation(config: IPPOConfig, share: bool) -> None:
    learner = build(config, probe_env(DISCRETE), MLPConfig(hidden=(16,), share_parameters=share), n_envs=32, steps=8)

    def reward(t: int, seen: dict[str, Tensor], action: Tensor) -> Tensor:
        return (action == torch.where(seen["a"].squeeze(-1) > 0, 1, 4)).float()

    for _ in range(25):
        learner.update(experience(learner, signs, reward, steps=8))
    for sign, best in ((1.0, 1), (-1.0, 4)):
        assert (learner.policy.act(torch.full((1, 2, 1), sign), explore=False).action == best).all()


@pytest.mark.parametrize("squash", ["tanh", "clip"])
def test_it_learns_the_best_continuous_action_in_the_environments_units(squash: str) -> None:
    config = IPPOConfig(lr=0.01, squash=squash)  # type: ignore[arg-type]
    learner = build(config, probe_env(CONTINUOUS), SMALL["mlp"], n_envs=32, steps=8)

    def reward(t: int, seen: dict[str, Tensor], action: Tensor) -> Tensor:
        return -(action.squeeze(-1) - 1.2).square()

    for _ in range(40):
        metrics = learner.update(experience(learner, ones, reward, steps=8))
    action = learner.policy.act(ones(0)["a"], explore=False).action
    torch.testing.assert_close(action.mean(), torch.tensor(1.2), atol=0.15, rtol=0)
    assert metrics["entropy"] < 1.0


@pytest.mark.parametrize(("config", "explained"), [(MAPPOConfig(lr=0.01), True), (IPPOConfig(lr=0.01), False)])
def test_a_centralised_critic_explains_what_only_another_group_sees(config: IPPOConfig, explained: bool) -> None:
    learner = build(config, probe_env(DISCRETE), SMALL["mlp"], n_envs=32, steps=8)

    def reward(t: int, seen: dict[str, Tensor], action: Tensor) -> Tensor:
        return seen["b"].squeeze(-1).expand(32, 2)

    for _ in range(10):
        metrics = learner.update(experience(learner, signs, reward, steps=8))
    assert (metrics["explained_variance"] > 0.9) is explained
    assert explained or abs(metrics["explained_variance"]) < 0.1


@pytest.mark.parametrize(("model", "solves"), [("gru", True), ("mlp", False)])
def test_only_memory_recalls_a_cue(model: str, solves: bool) -> None:
    """The first of 4 steps shows a sign; the last pays for the action that fits it."""
    config = IPPOConfig(lr=0.01, sequence_length=4, gamma=1.0)
    learner = build(config, probe_env(ActionSpec("discrete", n=(2,))), SMALL[model], n_envs=32, steps=16)
    cues = {}

    def observe(t: int) -> dict[str, Tensor]:
        if t % 4 == 0:
            cues[t // 4] = signs(t)["a"]
        shown = cues[t // 4] if t % 4 == 0 else torch.zeros(32, 2, 1)
        return {"a": shown, "b": torch.zeros(32, 1, 1)}

    def reward(t: int, seen: dict[str, Tensor], action: Tensor) -> Tensor:
        right = action == (cues[t // 4].squeeze(-1) > 0).long()
        return right.float() * (t % 4 == 3)

    for _ in range(30):
        rollout = experience(learner, observe, reward, steps=16, length=4)
        learner.update(rollout)
    score = rollout["next", "a", "reward"].sum() / (32 * 2 * 4)
    assert score > 0.9 if solves else score < 0.65


@pytest.mark.parametrize("model", ["mlp", "gru"])
def test_what_dead_agents_hold_changes_nothing(
    model: str, make_env: Callable[..., EnvSpec], make_rollout: Callable[..., TensorDict]
) -> None:
    env = make_env(DISCRETE)
    after = []
    for noise in (0.0, 50.0):
        learner = build(IPPOConfig(sequence_length=5), env, SMALL[model], "walker", n_envs=4, steps=20)
        rollout = make_rollout(env, {"walker": learner.policy}, dead=True)
        idle = ~rollout["walker", "acting"]
        assert idle.any()
        rollout["next", "walker", "reward"][idle] += noise
        rollout["walker", "observation"][idle] += noise
        rollout["walker", "log_prob"][idle] -= noise / 100
        metrics = learner.update(rollout)
        after.append((metrics, learner.state_dict()["policy"]))
    assert after[0][0] == after[1][0]
    assert all(torch.equal(after[0][1][name], after[1][1][name]) for name in after[0][1])


def test_sequences_begin_with_the_states_that_the_rollout_had_there(
    make_env: Callable[..., EnvSpec], make_rollout: Callable[..., TensorDict]
) -> None:
    """Before the first gradient step, log-probabilities and values are those of the rollout. Episodes have 7 steps."""
    config, env = IPPOConfig(sequence_length=5, value_clip=0.2), make_env(DISCRETE)
    learner = build(config, env, SMALL["gru"], "walker", n_envs=4, steps=20)
    with torch.no_grad():
        learner.policy.actor.network.head.weight *= 100  # else all choices are almost equally likely
    samples, _ = learner.prepare(make_rollout(env, {"walker": learner.policy}))
    output = learner.evaluate_minibatch(samples)
    torch.testing.assert_close(output.log_prob, samples["log_prob"])
    torch.testing.assert_close(output.value, samples["value"])


def leaves(state: Mapping[str, Any]) -> list[Any]:
    return [leaf for value in state.values() for leaf in (leaves(value) if isinstance(value, dict) else [value])]


@pytest.mark.parametrize(
    "config", [IPPOConfig(sequence_length=5), MAPPOConfig(sequence_length=5)], ids=lambda c: c.name
)
@pytest.mark.parametrize("model", ["mlp", "gru"])
@pytest.mark.parametrize("action", [DISCRETE, CONTINUOUS], ids=lambda a: a.kind)
def test_a_resumed_learner_continues_bit_for_bit(
    config: IPPOConfig,
    model: str,
    action: ActionSpec,
    make_env: Callable[..., EnvSpec],
    make_rollout: Callable[..., TensorDict],
) -> None:
    env = make_env(action)
    straight = build(config, env, SMALL[model], "walker", n_envs=4, steps=20)
    rollouts = [make_rollout(env, {"walker": straight.policy}, seed=k, dead=True) for k in range(4)]
    for rollout in rollouts[:2]:
        straight.update(rollout.clone())
    state = straight.state_dict()
    assert all(leaf is None or isinstance(leaf, Tensor | int | float | str) for leaf in leaves(state))
    expected = [straight.update(rollout.clone()) for rollout in rollouts[2:]]
    resumed = build(config, env, SMALL[model], "walker", n_envs=4, steps=20)
    torch.randn(7)  # what torch's global generator did meanwhile plays no part
    resumed.load_state_dict(state)
    assert [resumed.update(rollout.clone()) for rollout in rollouts[2:]] == expected
    weights = resumed.state_dict()["policy"]
    assert all(torch.equal(weights[name], tensor) for name, tensor in straight.state_dict()["policy"].items())


def test_a_state_of_other_networks_is_refused(make_env: Callable[..., EnvSpec]) -> None:
    env = make_env(DISCRETE)
    state = build(IPPOConfig(), env, SMALL["mlp"], "walker", n_envs=4, steps=20).state_dict()
    other = build(IPPOConfig(), env, MLPConfig(hidden=(17,)), "walker", n_envs=4, steps=20)
    with pytest.raises(CheckpointError, match="walker"):
        other.load_state_dict(state)


def test_an_update_leaves_the_rollout_as_it_was(
    make_env: Callable[..., EnvSpec], make_rollout: Callable[..., TensorDict]
) -> None:
    env = make_env(DISCRETE, state=(2,))
    learner = build(MAPPOConfig(), env, SMALL["mlp"], "walker", n_envs=4, steps=20)
    rollout = make_rollout(env, {"walker": learner.policy}, dead=True)
    before = rollout.clone()
    learner.update(rollout)
    assert (rollout == before).all()


def test_groups_of_different_spaces_learn_from_one_rollout(
    make_env: Callable[..., EnvSpec], make_rollout: Callable[..., TensorDict]
) -> None:
    env = make_env(CONTINUOUS)
    configs = {"walker": MAPPOConfig(), "other": IPPOConfig()}
    learners = {name: build(config, env, SMALL["mlp"], name, n_envs=4, steps=20) for name, config in configs.items()}
    rollout = make_rollout(env, {name: learner.policy for name, learner in learners.items()})
    before = {name: learner.state_dict()["policy"] for name, learner in learners.items()}
    for name, learner in learners.items():
        assert all(torch.tensor(value).isfinite() for value in learner.update(rollout).values())
        after = learner.state_dict()["policy"]
        weights = [key for key in after if key.startswith(("actor", "critic"))]
        assert all(not torch.equal(before[name][key], after[key]) for key in weights)


def test_a_standard_deviation_beyond_its_bounds_comes_back(
    make_env: Callable[..., EnvSpec], make_rollout: Callable[..., TensorDict]
) -> None:
    env = make_env(ActionSpec("continuous", low=(-1.0,), high=(1.0,)))
    learner = build(IPPOConfig(entropy_coef=1.0, lr=0.01), env, SMALL["mlp"], "walker", n_envs=4, steps=20)
    rollout, log_std = make_rollout(env, {"walker": learner.policy}), learner.policy.actor.log_std
    assert log_std is not None
    for value, bound in ((3.0, 2.0), (-6.0, -5.0)):
        log_std.data.fill_(value)
        learner.update(rollout)
        assert log_std.item() == bound
    for _ in range(3):
        learner.update(make_rollout(env, {"walker": learner.policy}))
    assert log_std.item() > -5
    with pytest.raises(ConfigError, match="initial_log_std"):
        IPPOConfig(initial_log_std=2.5)


def test_a_rollout_without_actions_changes_no_weight(
    make_env: Callable[..., EnvSpec], make_rollout: Callable[..., TensorDict]
) -> None:
    env = make_env(DISCRETE)
    learner = build(IPPOConfig(), env, SMALL["mlp"], "walker", n_envs=4, steps=20)
    rollout = make_rollout(env, {"walker": learner.policy})
    learner.update(rollout)
    before = learner.state_dict()["policy"]
    rollout["walker", "acting"].zero_()
    metrics = learner.update(rollout)
    after = learner.state_dict()["policy"]
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert metrics["epochs"] == 0


def test_the_learning_rate_falls_in_a_straight_line_with_frames() -> None:
    config = IPPOConfig(lr=1.0, lr_critic=2.0, lr_final=0.0, anneal_frames=100)
    learner = build(config, probe_env(DISCRETE), SMALL["mlp"], n_envs=32, steps=8)
    for frames, share in ((0, 1.0), (25, 0.75), (100, 0.0), (500, 0.0)):
        learner.frames = frames
        assert learner.learning_rates() == {"actor": share, "critic": 2 * share}


def test_minibatches_cover_every_frame_once_in_nearly_equal_parts() -> None:
    for config, n_samples, sizes in (
        (IPPOConfig(minibatch_frames=400), 2000, [400] * 5),
        (IPPOConfig(minibatch_frames=400), 2100, [420] * 5),
        (IPPOConfig(minibatch_frames=4000), 2000, [2000]),
        (IPPOConfig(n_minibatches=3), 10, [3, 3, 4]),
    ):
        learner = build(config, probe_env(DISCRETE), SMALL["mlp"], n_envs=32, steps=100)
        bounds = learner.minibatch_bounds(n_samples)
        assert [stop - start for start, stop in itertools.pairwise(bounds)] == sizes
        assert bounds[0] == 0 and bounds[-1] == n_samples


def test_epochs_end_once_the_policy_has_moved_too_far(
    make_env: Callable[..., EnvSpec], make_rollout: Callable[..., TensorDict]
) -> None:
    env = make_env(DISCRETE)
    epochs = {}
    for target in (None, 1e-9):
        learner = build(IPPOConfig(target_kl=target), env, SMALL["mlp"], "walker", n_envs=4, steps=20)
        epochs[target] = learner.update(make_rollout(env, {"walker": learner.policy}))["epochs"]
    assert epochs == {None: 10, 1e-9: 2} or epochs == {None: 10, 1e-9: 1}


@pytest.mark.parametrize(
    ("config", "model", "action", "says"),
    [
        (IPPOConfig(sequence_length=7), "gru", DISCRETE, r"sequence_length=7 .* rollout_steps=8; valid: 1, 2, 4, 8"),
        (IPPOConfig(n_minibatches=999), "mlp", DISCRETE, "999 minibatches of 256"),
        (IPPOConfig(anneal_frames=10), "mlp", DISCRETE, "lr_final"),
        (IPPOConfig(lr_final=1e-5), "mlp", DISCRETE, r"lr_final=1e-05 needs anneal_frames.*got 0"),
        (IPPOConfig(), "mlp", ActionSpec("continuous", low=(-float("inf"),), high=(1.0,)), "finite bounds"),
    ],
)
def test_what_cannot_be_learned_is_refused_when_built(
    config: IPPOConfig, model: str, action: ActionSpec, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        build(config, probe_env(action), SMALL[model], n_envs=32, steps=8)


def test_the_algorithms_are_registered() -> None:
    assert ALGORITHMS.get("ippo") is IPPOConfig and ALGORITHMS.get("mappo") is MAPPOConfig


def test_values_are_clipped_around_the_critics_own_output_whatever_the_scale_of_returns() -> None:
    """Before the first step nothing is beyond the clip, although the returns have just moved the scale by far."""
    config = MAPPOConfig(value_clip=0.2)
    learner = build(config, probe_env(DISCRETE), SMALL["mlp"], n_envs=64, steps=4)
    observe = {"a": torch.rand(64, 2, 1), "b": torch.rand(64, 1, 1)}
    rollout = experience(
        learner, lambda _: observe, lambda _, observed, action: 100 + 50 * observed["a"].squeeze(-1), steps=4
    )
    for _ in range(3):
        samples, _ = learner.prepare(rollout)
        torch.testing.assert_close(learner.evaluate_minibatch(samples).value, samples["value"])
        learner.update(rollout)
