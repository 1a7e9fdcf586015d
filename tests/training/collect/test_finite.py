"""Numbers that are not finite, and episodes that never end: who, where and when, in training, evaluation, recording."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from marlnb.config import EnvConfig
from marlnb.envs.pettingzoo import CustomConfig
from marlnb.errors import ConfigError, EnvError
from marlnb.experiment import Experiment
from marlnb.recording.capture.recorder import record
from marlnb.specs import derive_seed
from marlnb.training.collect import episodes
from marlnb.training.policies.evaluation import evaluate
from marlnb.training.runs.run import Run
from marlnb.training.train import train

TINY = (
    *("algorithm.epochs=1", "algorithm.minibatch_frames=64", "threads=1", "model.hidden=[4]"),
    *("n_envs=2", "rollout_steps=8", "frames=64", "checkpoint_every=100"),
)


def experiment(kind: str, *overrides: str) -> Experiment:
    where = ("env=pettingzoo/custom", f"env.entry_point=tests.envs.difficult_envs:{kind}", "env.workers=0")
    return Experiment.compose(*where, "algorithm=ippo", *TINY, *overrides)


def not_finite(env: EnvConfig, **kwargs: object) -> CustomConfig:
    assert isinstance(env, CustomConfig)
    return replace(env, kwargs={**env.kwargs, **kwargs})


@pytest.mark.parametrize(
    ("overrides", "what", "when"),
    [
        (("what=reward",), "reward nan", "after step 4"),
        (("what=reward", "infinite=true"), "reward inf", "after step 4"),
        (("what=observation",), "observation nan", "after step 4"),
        (
            ("what=observation", "continuous=true"),
            "observation nan",
            "after step 4",
        ),  # so is the action, which is refused
        (("what=observation", "step=0"), "observation nan", "after the reset"),
        (("what=observation", "step=5"), "observation nan", "after step 5"),  # the last one of a_1
    ],
)
def test_training_names_agent_step_and_seed(tmp_path: Path, overrides: tuple[str, ...], what: str, when: str) -> None:
    """Episodes have six steps and rollouts eight: the second episode of env 1 begins in the first rollout."""
    seed = derive_seed(0, "env", 0) + 2 + 1
    made = experiment("NotFinite", *(f"env.kwargs.{item}" for item in (*overrides, f"seed={seed}")))
    message = rf"'a_1' got {what} in env 1 {when} of the episode with seed {seed}; expected a finite number. Nothing"
    with pytest.raises(EnvError, match=message):
        train(made, tmp_path / "run", progress=False)
    run = Run.open(tmp_path / "run")
    assert run.status()["state"] == "failed"


def test_evaluation_and_recording_name_agent_step_and_seed(tmp_path: Path) -> None:
    run = train(experiment("NotFinite", "env.kwargs.what=none"), tmp_path / "run", progress=False)
    for what in ("reward", "observation"):
        env = not_finite(run.experiment.env, what=what, seed=1003)
        message = f"'a_1' got {what} nan in env 1 after step 4 of the episode with seed 1003"
        with pytest.raises(EnvError, match=message):
            evaluate(run, episodes=6, seed=1000, env=env)
        with pytest.raises(EnvError, match=message):
            record(run, episodes=6, seed=1000, env=env, name=what, progress=False)


def test_episodes_that_never_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episodes, "MAX_STEPS", 50)
    run = train(
        experiment("Named", "env.kwargs.names=[a_0]", "env.kwargs.endless=true"), tmp_path / "run", progress=False
    )
    message = (
        r"the episode with seed \d+, in env 0, has not ended after 51 steps, and the environment states no limit. "
        r"Set one: env.max_steps=1000 in the experiment, or for this call `--env pettingzoo/custom env.max_steps=1000`"
    )
    with pytest.raises(EnvError, match=message):
        evaluate(run, episodes=3)
    with pytest.raises(EnvError, match=message):
        record(run, episodes=3, progress=False)
    limited = replace(run.experiment.env, max_steps=70)  # type: ignore[call-arg]
    assert evaluate(run, episodes=3, env=limited).length_mean == 70
    with record(run, episodes=3, env=limited, name="limited", progress=False) as recording:
        assert recording.episodes["n_steps"].tolist() == [70] * 3


def test_agents_with_slashes_are_trained_recorded_and_read(tmp_path: Path) -> None:
    run = train(experiment("Named", "env.kwargs.names=[team/red_0,team/red_1,b/c]"), tmp_path / "run", progress=False)
    assert run.spec.group_names == ("team_red", "b_c")
    with record(run, episodes=3, progress=False) as recording:
        assert recording.agents == ["team/red_0", "team/red_1", "b/c"]
        site = "team_red/actor/hidden_1"
        assert recording[site].sel(agent="team/red_1").to_numpy().shape == (18, 4)


@pytest.mark.parametrize(
    "name", ["next", "done", "is_init", "state", "t", "env_id", "episode", "a/b", ".", "\0", "\ud800"]
)
def test_groups_with_the_names_of_fields(tmp_path: Path, name: str) -> None:
    message = rf"a group of agents cannot be named {re.escape(repr(name))}.*none of next, done, .*groups.<name>="
    made = replace(experiment("Named", "env.kwargs.names=[x_0]"), groups={name: ("x_0",)})
    with pytest.raises(ConfigError, match=message):
        train(made, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
