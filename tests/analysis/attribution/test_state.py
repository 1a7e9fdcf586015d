"""Values by the environment's state: compared with the critic itself, whose input is changed feature by feature."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.errors import AnalysisError, ShapeError
from marlnb.recording.file.reader import Recording
from marlnb.training.policies.agents import Agents

SPREAD = Path(__file__).parents[3] / "data" / "benchmarl_simple_spread"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Agents, Recording]:
    agents = mnb.agents_from_benchmarl(SPREAD, path=tmp_path_factory.mktemp("state"))
    return agents, mnb.record(agents, episodes=3, sites="agent/critic/hidden_1", progress=False)


def explained(made: tuple[Agents, Recording], **options: Any) -> mnb.Attribution:
    agents, recording = made
    return mnb.attribute(
        recording, group="agent", to="value", steps=[0, 7], policies=agents.by_group, progress=False, **options
    )


def states(recording: Recording, steps: tuple[int, ...] = (0, 7)) -> torch.Tensor:
    whole = torch.from_numpy(recording.state.to_numpy())
    return whole[np.isin(recording.rows["t"].to_numpy(), steps)]


def test_values_add_up_to_the_critics_value(made: tuple[Agents, Recording]) -> None:
    agents, recording = made
    critic: Any = agents.by_group["agent"].critic
    result = explained(made, n_steps=200)
    assert result.sources == "state" and result.values.shape == (6, 3, 54) and not result.warnings
    state, mean = states(recording), torch.from_numpy(recording.state.to_numpy()).mean(0, keepdim=True)
    with torch.no_grad():
        difference = critic({}, state) - critic({}, mean)
    np.testing.assert_allclose(result.values.sum(-1), difference, atol=1e-4)
    np.testing.assert_allclose(result.baseline[0], mean[0], atol=1e-5)
    assert difference.abs().max() > 0.01


def test_saliency_is_the_critics_gradient(made: tuple[Agents, Recording]) -> None:
    agents, recording = made
    critic: Any = agents.by_group["agent"].critic
    state = states(recording).requires_grad_()
    (gradient,) = torch.autograd.grad(critic({}, state)[:, 1].sum(), state)
    result = explained(made, method="saliency", agent="agent_1")
    np.testing.assert_allclose(np.abs(result.values[:, 0]), gradient.abs(), atol=1e-6)


def test_ablation_of_a_named_group_is_the_critics_answer_without_it(made: tuple[Agents, Recording]) -> None:
    agents, recording = made
    critic: Any = agents.by_group["agent"].critic
    result = explained(made, method="feature_ablation", features={"landmarks": ["landmark_*"]}, baseline="zero")
    state = states(recording)
    names, owners = np.array(explained(made).feature_names), np.array(explained(made).feature_agents)
    for agent in ("agent_0", "agent_2"):
        hidden = torch.from_numpy((owners == agent) & np.char.startswith(names, "landmark_"))
        with torch.no_grad():
            moved = critic({}, state) - critic({}, torch.where(hidden, 0.0, state))
        (place,) = (
            k
            for k, (name, owner) in enumerate(zip(result.feature_names, result.feature_agents))
            if (name, owner) == ("landmarks", agent)
        )
        np.testing.assert_allclose(result.values[:, :, place], moved, atol=1e-5)


def test_a_state_of_observations_has_their_names_and_owners(made: tuple[Agents, Recording]) -> None:
    agents, recording = made
    result = explained(made)
    own = agents.spec.group("agent").observation.names
    assert result.feature_names == own * 3 and result.feature_agents == tuple(
        agent for agent in ("agent_0", "agent_1", "agent_2") for _ in own
    )
    assert {name: part.shape for name, part in result.by_source().items()} == dict.fromkeys(result.agents, (6, 3, 18))
    who = mnb.influence(recording, "critic", policies=agents.by_group)
    assert np.isfinite(who.values).all() and who.values.max() > 0


def test_a_state_of_something_else_is_numbered(made: tuple[Agents, Recording], monkeypatch: pytest.MonkeyPatch) -> None:
    from marlnb.analysis.data.rows import RowSource

    batches = RowSource.batches

    def turned(self: RowSource, *given: Any, **named: Any) -> Any:
        for moments in batches(self, *given, **named):
            if moments.state is not None:
                object.__setattr__(moments, "state", moments.state.flip(-1))
            yield moments

    monkeypatch.setattr(RowSource, "batches", turned)
    result = explained(made)
    assert result.feature_names[:2] == ("state[0]", "state[1]") and result.feature_agents == ()
    with pytest.raises(AnalysisError, match="sources: the environment's state"):
        result.by_source()


def test_conductance_and_units_of_the_critic(made: tuple[Agents, Recording]) -> None:
    through = explained(made, method="conductance", site="agent/critic/hidden_1", n_steps=200)
    whole = explained(made, n_steps=200)
    np.testing.assert_allclose(through.values.sum(-1), whole.values.sum(-1), rtol=1e-2)
    agents, recording = made
    unit = mnb.attribute(
        recording,
        group="agent",
        to="unit",
        target=("agent/critic/hidden_1", 3),
        steps=[7],
        policies=agents.by_group,
        progress=False,
    )
    hidden = recording["agent/critic/hidden_1"].to_numpy()[recording.rows["t"].to_numpy() == 7][:, 0, 3]
    np.testing.assert_allclose(unit.score[:, 0], hidden, atol=1e-5)
    np.testing.assert_allclose(unit.values.sum(-1), unit.score - unit.baseline_score, atol=1e-3)


def test_what_cannot_be_asked(made: tuple[Agents, Recording], tmp_path: Path) -> None:
    agents, recording = made
    with pytest.raises(AnalysisError, match="an actor reads observations"):
        mnb.attribute(recording, group="agent", sources="state", policies=agents.by_group, progress=False)
    with pytest.raises(ShapeError, match=r"the environment's state must broadcast to \[feature\] = \[54\]"):
        explained(made, baseline=np.zeros(7))
    np.testing.assert_array_equal(explained(made, baseline=np.full(54, 0.5)).baseline, np.full((3, 54), 0.5))
    stateless = mnb.agents_from_benchmarl(SPREAD, env=SimpleSpreadConfig(max_cycles=4), path=tmp_path)
    bare = mnb.record(stateless, episodes=1, progress=False)
    with pytest.raises(AnalysisError, match="this environment has no state"):
        mnb.attribute(bare, group="agent", to="value", sources="state", policies=stateless.by_group, progress=False)


def test_a_critic_that_reads_both_is_explained_by_either(tmp_path: Path) -> None:
    experiment = mnb.Experiment.compose(
        "env=mpe/simple_spread", "env.state=true", "env.max_cycles=5", "algorithm=mappo", "frames=200"
    )
    run = mnb.train(experiment, tmp_path / "run")
    recording = mnb.record(run, episodes=2, progress=False)
    result = mnb.attribute(recording, group="agent", to="value", sources="state", n_steps=200, progress=False)
    policy = run.policies()["agent"]
    seen = {"agent": torch.from_numpy(recording.steps("agent", "observation").to_numpy())}
    state = torch.from_numpy(recording.state.to_numpy())
    with torch.no_grad():
        moved = policy.value(seen, state=state)[0] - policy.value(seen, state=state.mean(0).expand_as(state))[0]
    np.testing.assert_allclose(result.values.sum(-1), moved, atol=1e-4)
    assert result.values.any() and mnb.attribute(recording, group="agent", to="value", progress=False).sources == "all"
