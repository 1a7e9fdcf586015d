"""Actors that read other agents' observations: their dependence on one another is measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import marlnb as mnb
from marlnb.algorithms.configs.ppo import IPPOConfig
from marlnb.algorithms.configs.sac import ISACConfig
from marlnb.algorithms.configs.value_decomposition import IQLConfig
from marlnb.analysis.attribution.attribute import attribute
from marlnb.config import AlgorithmConfig, EnvConfig
from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.errors import AnalysisError
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.run import Run
from tests.analysis.conftest import make_run
from tests.recording.runs import LivesConfig
from tests.recording.runs import make_run as untrained_run

SMALL = ("n_envs=4", "rollout_steps=25", "frames=100", "algorithm=ippo", "algorithm.epochs=1")
HEARING = (*SMALL, "model=gnn", "critic=mlp")


@pytest.fixture(scope="module")
def hearing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    """Three agents, each of which reads the two others' observations."""
    run = make_run(tmp_path_factory.mktemp("runs") / "hearing", "mpe/simple_spread", *HEARING)
    with record(run, episodes=4, progress=False) as opened:
        yield opened


def test_an_output_depends_on_the_agents_that_are_read(hearing: Recording) -> None:
    result = attribute(hearing, group="agent", to="logit", target=1, n_steps=200)
    assert result.sources == "all" and result.values.shape[2] == 3 * 18
    owed = np.abs(result.values).reshape(len(result.values), 3, 3, 18).sum(-1)  # [row, whose output, whose observation]
    influence = result.influence()
    for agent in range(3):
        for other in range(3):
            assert influence.iloc[agent, other] == pytest.approx(owed[:, agent, other].mean(), rel=1e-4)
    assert (influence.to_numpy() > 0).all()
    np.testing.assert_allclose(result.values.sum(-1), result.score - result.baseline_score, atol=1e-4)


def test_own_sources_are_rejected(hearing: Recording) -> None:
    with pytest.raises(AnalysisError, match="sources='all'"):
        attribute(hearing, group="agent", sources="own")


def test_agents_that_read_no_others_do_not_depend_on_them(tmp_path: Path) -> None:
    run = make_run(tmp_path / "deaf", "mpe/simple_spread", *SMALL)
    with record(run, episodes=4, progress=False) as recording:
        influence = attribute(recording, group="agent", sources="all").influence().to_numpy()
    assert (np.diag(influence) > 0).all() and (influence[~np.eye(3, dtype=bool)] == 0).all()


def test_agents_that_are_read_must_be_recorded(hearing: Recording) -> None:
    assert hearing.run_path is not None
    with record(
        Run.open(hearing.run_path), episodes=4, agents=["agent_0"], name="one", values=False, progress=False
    ) as one:
        with pytest.raises(AnalysisError, match="not recorded: \\['agent_1', 'agent_2'\\]"):
            attribute(one, group="agent")


@pytest.mark.parametrize(
    ("env", "algorithm"),
    [(LivesConfig(), IPPOConfig()), (LivesConfig(), ISACConfig()), (SimpleSpreadConfig(), IQLConfig())],
)
def test_a_decentralised_critic_needs_a_recording_of_the_explained_agents_alone(
    tmp_path: Path, env: EnvConfig, algorithm: AlgorithmConfig
) -> None:
    """The others' observations contribute exactly 0 to its values."""
    run = untrained_run(tmp_path / "run", env, algorithm=algorithm)
    group = run.spec.groups[0]
    agent = group.agents[0]
    results = []
    for agents in (None, [agent]):
        with record(run, episodes=4, agents=agents, name=f"of_{agents}", progress=False) as recording:
            results.append(attribute(recording, group=group.name, agent=agent, to="value", progress=False))
            influence = mnb.influence(recording, "critic", n_steps=5, progress=False)
            assert influence.values[influence.agents.index(agent)].any()
    whole, part = results
    scale, others = np.nanmax(np.abs(whole.values)), np.array([owner != agent for owner in whole.feature_agents])
    np.testing.assert_allclose(part.values, whole.values, atol=1e-5 * scale)
    assert scale > 0 and (whole.values[..., others] == 0).all()


def test_a_centralised_critic_needs_a_recording_of_all_agents(tmp_path: Path) -> None:
    run = untrained_run(tmp_path / "run", LivesConfig())
    with record(run, episodes=4, agents=["a_0", "b_0"], progress=False) as part:
        with pytest.raises(AnalysisError, match=r"outputs of 'a' depend on all agents; not recorded: \['a_1', 'a_2'\]"):
            attribute(part, group="a", to="value")


def test_each_agents_value_is_made_of_its_own_units(hearing: Recording) -> None:
    result = attribute(hearing, group="agent", to="value", site="agent/critic/hidden_2", n_steps=20)
    assert result.values.shape == (100, 3, 64) and np.abs(result.values).min(axis=(0, 2)).shape == (3,)
    assert np.abs(result.values).sum() > 0 and result.relative_delta.max() < 1e-2
