"""Whole training runs on a GPU, and what is done with their runs there and on a CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.config import ALGORITHMS
from marlnb.experiment import Experiment
from marlnb.recording.file.layout import row_paths
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.run import Run
from tests.training.together.trainings import together

LEARNING = [name for name, config in ALGORITHMS.items() if config.learns]
RECURRENT = ("a2c", "ippo", "iql", "maa2c", "mappo", "qmix", "vdn")
CONTINUOUS = ("iddpg", "maddpg", "matd3")
SMALL = ("model.hidden=[8]", "n_envs=4", "rollout_steps=5", "checkpoint_every=2", "evaluation_episodes=2")
GPU = "device=cuda"
DATA = Path(__file__).parents[2] / "data"


def compose(*overrides: str, frames: int = 100) -> Experiment:
    return Experiment.compose("env=mpe/simple_spread", *SMALL, GPU, f"frames={frames}", "tuned=false", *overrides)


def off_policy(algorithm: str) -> list[str]:
    if ALGORITHMS.get(algorithm).on_policy:
        return ["algorithm.minibatch_frames=10"]
    return ["algorithm.learning_starts=20", "algorithm.batch_size=8", "algorithm.buffer_frames=200"]


@pytest.mark.parametrize(
    ("algorithm", "model"), [*((name, "mlp") for name in LEARNING), *((name, "gru") for name in RECURRENT)]
)
def test_every_algorithm_trains_and_resumes(tmp_path: Path, algorithm: str, model: str) -> None:
    words = [f"algorithm={algorithm}", f"model={model}", "algorithm.sequence_length=5", *off_policy(algorithm)]
    words += ["env.continuous_actions=true"] if algorithm in CONTINUOUS else []
    run = mnb.train(compose(*words), tmp_path / "run", progress=False)
    assert run.status()["state"] == "complete"
    assert mnb.resume(run, frames=200, progress=False).status()["frames"] == 200
    with (
        mnb.record(run, episodes=2, device="cuda", progress=False) as there,
        mnb.record(run, episodes=2, name="cpu", progress=False) as here,
    ):
        first = here.rows["t"].to_numpy() == 0  # later, an action may differ where two are almost equal
        for path in row_paths(here.file):
            if path.startswith(("activations/", "steps/agent/observation")):
                ours, theirs = (recording.file[path][:][first] for recording in (there, here))
                np.testing.assert_allclose(ours, theirs, atol=1e-4, err_msg=path)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(
            ["env=pettingzoo/custom", "env.entry_point=tests.examples.environment:Meeting", "algorithm=ippo"],
            id="processes",
        ),
        pytest.param(["env=tree/biased_rps", "algorithm=ippo"], id="turn-based"),
        pytest.param(
            [
                "env=mpe/simple_tag",
                "algorithms.agent=iql",
                "algorithms.adversary=mappo",
                "algorithms.agent.learning_starts=20",
            ],
            id="two algorithms",
        ),
        pytest.param(["env=tag/gridworld", "algorithm=a2c", "cuda_graphs=true"], id="gridworld"),
        pytest.param(
            ["env=mpe/simple_tag", "algorithm=ippo", "league=self_play", "league.snapshot_frames=40"], id="league"
        ),
        pytest.param(
            ["algorithm=ippo", "evolution=tournament", "evolution.population=3", "evolution.generation_frames=40"],
            id="evolution",
        ),
    ],
)
def test_other_trainings(tmp_path: Path, words: list[str]) -> None:
    run = mnb.train(compose(*words, frames=240), tmp_path / "run", progress=False)
    assert run.status()["state"] == "complete"


def test_trainings_together(tmp_path: Path) -> None:
    """They draw other random numbers than a training run alone, which a CPU's tests compare."""
    experiments = [compose("algorithm=mappo", f"seed={seed}", "algorithm.minibatch_frames=10") for seed in range(3)]
    assert [run.status()["frames"] for run in together(tmp_path, experiments)] == [100] * 3


def test_the_same_seed_trains_the_same_weights(tmp_path: Path) -> None:
    runs = [mnb.train(compose("algorithm=mappo"), tmp_path / name, progress=False) for name in ("one", "two")]
    one, two = (run.policies()["agent"].state_dict() for run in runs)
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-4, atol=1e-6)


def test_a_run_is_opened_and_explained_on_a_cpu(tmp_path: Path) -> None:
    run = mnb.train(compose("algorithm=mappo", "cuda_graphs=true", frames=200), tmp_path / "run", progress=False)
    assert all(not weight.is_cuda for weight in run.policies()["agent"].parameters())
    assert np.isfinite(mnb.evaluate(run, episodes=4).return_mean["agent"])
    with mnb.record(run, episodes=4, device="cuda", progress=False) as recording:
        attribution = mnb.attribute(recording, group="agent", to="action", n_steps=5, progress=False)
        assert np.isfinite(attribution.values).all()
        mnb.decode(recording, site="agent/actor/hidden_1", label="landmarks_covered", folds=2, progress=False)


def test_edits_have_the_effects_that_they_have_on_a_cpu() -> None:
    """In trained agents, whose greedy actions are seldom a close choice."""
    run, site = Run.open(DATA / "speaker_listener"), "listener/actor/hidden_1"
    options = [{"episodes": 4, "device": device, "progress": False} for device in ("cuda", "cpu")]
    there, here = (mnb.intervene(run, mnb.Ablate(site, units=(3,)), **each) for each in options)
    np.testing.assert_allclose(there.returns["listener_0"], here.returns["listener_0"], rtol=0.02)
    there, here = (mnb.causal_map(run, site, **each) for each in options)
    for unit, expected in zip(there.units, here.units, strict=True):
        ours, theirs = ([e.after for e in each.effects if e.outcome == "return"] for each in (unit, expected))
        np.testing.assert_allclose(ours, theirs, rtol=0.02)


def test_a_flight_recorder_keeps_what_the_gpu_did(tmp_path: Path) -> None:
    words = ("algorithm=mappo", "rollout_steps=25", "checkpoint_every=1", "keep_checkpoints=0")
    for graphs in ("false", "true"):
        planned = compose(*words, f"cuda_graphs={graphs}", frames=800)
        recorder = mnb.FlightRecorder(every_envs=2, sites="*")
        run = mnb.train(planned, tmp_path / graphs, progress=False, callbacks=[recorder])
        with Recording.open(run.recordings["flight"]) as flight:
            assert flight.complete and len(flight) == 400
            again = mnb.replay(flight, flight.episodes.query("finished and checkpoint > 0").index[0])
            assert again.largest < 1e-4, again
