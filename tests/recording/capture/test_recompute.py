"""Activations recomputed for many rows at once are those that fired step by step, for every algorithm and network."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from marlnb.config import ALGORITHMS, ENVIRONMENTS, MODELS
from marlnb.errors import ConfigError, ShapeError, SiteError
from marlnb.experiment import Experiment
from marlnb.models.hooks.capture import capture
from marlnb.models.policies.policy import Policy
from marlnb.recording.capture.recompute import TOLERANCE, in_critic, recompute
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec
from marlnb.training.learners import build_learners
from tests.models.test_contract import make, observed
from tests.sampling import sample

LEARNING = [name for name in ALGORITHMS.names() if name not in ("frozen", "no_op", "random", "scripted")]
STEPS, N_ENVS = 4, 3


def policies_of(algorithm: str, model: str, share: bool) -> dict[str, Policy]:
    """Untrained policies of two groups with a state, biases made other than zero.

    Raises:
        ConfigError: the algorithm cannot learn with such a network.
    """
    config = make(model, share=share)
    observations, actions = ObservationSpec(observed(config)), ActionSpec("discrete", (4,))
    groups = tuple(
        GroupSpec(name, tuple(f"{name}_{k}" for k in range(n)), observations, actions)
        for name, n in (("a", 3), ("b", 3))
    )
    critic = make(model, share=share) if model not in ("cnn", "deep_sets", "attention") else make("mlp", share=share)
    experiment = Experiment(
        env=ENVIRONMENTS.get("mpe/simple_spread")(), algorithm=ALGORITHMS.get(algorithm)(), model=config, critic=critic
    )
    torch.manual_seed(1)
    learners = build_learners(experiment, EnvSpec("test", groups, state_shape=(5,)), "cpu")
    policies = {name: learner.policy.eval() for name, learner in learners.items()}
    with torch.no_grad():
        for policy in policies.values():
            for parameter in policy.parameters():
                parameter += 0.2 * torch.randn_like(parameter)
    return policies


def cases() -> Iterator[Any]:
    for algorithm in LEARNING:
        for model in MODELS.names():
            for share in (True, False):
                yield pytest.param(algorithm, model, share, id=f"{algorithm}-{model}-{'shared' if share else 'own'}")


def step_by_step(
    policy: Policy, observations: dict[str, Tensor], state: Tensor
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What each site puts out at each step, `[step * copy, agent, unit]`, and the states that entered each."""
    names = [site.name for site in policy.sites()]
    shapes = {"recurrent": policy.recurrent_shape, "critic_recurrent": policy.critic_recurrent_shape}
    now = {
        part: None if shape is None else torch.zeros(N_ENVS, policy.group.n_agents, *shape)
        for part, shape in shapes.items()
    }
    fired: dict[str, list[Tensor]] = {name: [] for name in names}
    entered: dict[str, list[Tensor]] = {part: [] for part, shape in shapes.items() if shape is not None}
    for t in range(STEPS):
        for part in entered:
            entered[part].append(now[part])  # type: ignore[arg-type]
        with torch.no_grad(), capture(policy) as acting:
            output = policy.act(observations[policy.group.name][t], recurrent=now["recurrent"], explore=False)
        with torch.no_grad(), capture(policy) as judging:
            time_step = {name: values[t] for name, values in observations.items()}
            _, after = policy.value(time_step, state=state[t], recurrent=now["critic_recurrent"])
        for name in names:
            fired[name].append((judging if in_critic(name) else acting)[name])
        now = {"recurrent": output.recurrent, "critic_recurrent": after}
    return {name: torch.cat(values) for name, values in fired.items()}, {
        part: torch.cat(values) for part, values in entered.items()
    }


MUST_BE_BUILT = {
    *((algorithm, model) for algorithm in ("ippo", "mappo", "qmix") for model in ("mlp", "gru", "lstm")),
    *((algorithm, "attention") for algorithm in ("ippo", "mappo", "vdn")),
    *((algorithm, "mlp") for algorithm in ("maddpg", "matd3", "masac", "iddpg", "isac")),
}


def in_sample(case: Any) -> list[Hashable]:
    """Each kind of learner with each network, shared and not; and what must be built."""
    algorithm, model, share = case.values
    required = [(algorithm, model)] if (algorithm, model) in MUST_BE_BUILT else []
    return [algorithm, (ALGORITHMS.get(algorithm).__module__, model), (model, share), *required]


@pytest.mark.parametrize(("algorithm", "model", "share"), sample(list(cases()), in_sample))
def test_all_rows_at_once_are_what_fired(algorithm: str, model: str, share: bool) -> None:
    try:
        policies = policies_of(algorithm, model, share)
    except ConfigError:
        assert (algorithm, model) not in MUST_BE_BUILT
        return
    torch.manual_seed(2)
    shape = policies["a"].group.observation.shape
    observations = {
        name: torch.randn(STEPS, N_ENVS, policy.group.n_agents, *shape) for name, policy in policies.items()
    }
    state = torch.randn(STEPS, N_ENVS, 5)
    policy = policies["a"]
    fired, entered = step_by_step(policy, observations, state)
    assert fired and all(len(values) == STEPS * N_ENVS for values in fired.values())
    rows = {name: values.flatten(0, 1) for name, values in observations.items()}
    recomputed = recompute(policy, "*", rows, state=state.flatten(0, 1), **entered)
    assert list(recomputed) == list(fired)
    for name, values in fired.items():
        assert float((recomputed[name] - values).abs().max()) <= TOLERANCE * max(1e-3, float(values.abs().max())), name


def test_a_mixer_and_the_weights_of_attention_are_sites() -> None:
    qmix = policies_of("qmix", "mlp", True)["a"]
    assert "a/mixer/hidden" in [site.name for site in qmix.sites()]
    attentive = policies_of("ippo", "attention", True)["a"]
    assert "a/actor/attention" in [site.name for site in attentive.sites()]


def test_a_recurrent_network_asks_for_its_state() -> None:
    policy = policies_of("ippo", "gru", True)["a"]
    rows = {"a": torch.randn(2, 3, *policy.group.observation.shape)}
    with pytest.raises(ShapeError, match=r"actor of 'a' is recurrent.*\[row, 3, 1, 4\]"):
        recompute(policy, "a/actor/*", rows)
    with pytest.raises(SiteError, match="a/actor/gru"):
        recompute(policy, "a/actor/gruu", rows)
