"""One file that spans checkpoints: the same episodes for each, every row assigned to its checkpoint; edits."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import marlnb
from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.errors import RecordingError
from marlnb.models.hooks.edits import Ablate, Noise
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.segments import join
from marlnb.training.learners import build_learners
from marlnb.training.policies.evaluation import evaluate
from marlnb.training.runs.checkpoints.checkpoint import save_checkpoint
from marlnb.training.runs.run import Run
from tests.recording.runs import LivesConfig, length_of, make_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run with checkpoints 7, 8 and 12, of other weights each."""
    made = make_run(tmp_path / "run", LivesConfig(), GRUConfig(hidden=(6,), recurrent_size=4), centralised=False)
    learners = build_learners(made.experiment, made.spec, "cpu")
    for iteration in (8, 12):
        with torch.no_grad():
            for learner in learners.values():
                for parameter in learner.policy.parameters():
                    parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(iteration))
        state = {"learners": {name: learner.state_dict() for name, learner in learners.items()}}
        save_checkpoint(made.path / "checkpoints", state, iteration=iteration, frames=0, returns={})
    return made


def test_the_same_episodes_for_each_checkpoint(run: Run) -> None:
    options = {"episodes": 5, "n_envs": 2, "seed": 21, "sites": "*", "progress": False}
    with record(run, checkpoint=[12, 7], name="both", **options) as both:  # type: ignore[arg-type]
        assert both.complete and both.episodes.index.tolist() == list(range(10))
        assert both.episodes["checkpoint"].tolist() == [12] * 5 + [7] * 5
        assert both.episodes["seed"].tolist() == [21 + k for k in range(5)] * 2
        assert both.episodes["n_steps"].tolist() == [length_of(21 + k) for k in range(5)] * 2
        n = sum(length_of(21 + k) for k in range(5))
        table = both.checkpoints
        assert table["iteration"].tolist() == [12, 7]
        assert table[["row_start", "row_stop"]].to_numpy().tolist() == [[0, n], [n, 2 * n]]
        assert table["sha256"].tolist() == [run.checkpoint(12).sha256, run.checkpoint(7).sha256]
        for place, iteration in enumerate((12, 7)):
            with record(run, checkpoint=iteration, name=f"only-{iteration}", **options) as only:  # type: ignore[arg-type]
                for site in only.sites:
                    stored = both[site].sel(checkpoint=iteration).to_numpy()
                    alone = only[site].sel(episode=range(5)).to_numpy()
                    # a pass has the rows that wait when a flush is due, so its rounding depends on the time
                    np.testing.assert_allclose(stored, alone, rtol=1e-5, atol=1e-6, err_msg=site)
                    chosen = both[site].sel(checkpoint=iteration, episode=[5 * place + 3], t=2, agent=0).to_numpy()
                    of_episode = only[site].sel(episode=3, t=2, agent=0).to_numpy()
                    np.testing.assert_allclose(chosen[0], of_episode[0], rtol=1e-5, atol=1e-6, err_msg=site)
        first, second = (both["a/actor/head"].sel(checkpoint=each).to_numpy() for each in (12, 7))
        assert first.shape == second.shape and not np.allclose(first, second)
        with pytest.raises(RecordingError, match=r"no rows of checkpoint \[8\]"):
            both["a/actor/head"].sel(checkpoint=8)
        assert both.checkpoint == (7, run.checkpoint(7).sha256)
        folder = both.path.parent
        with marlnb.extract(both, folder / "part.h5", episodes=range(5)) as part:
            assert part.checkpoint == (12, run.checkpoint(12).sha256)
        names = ("only-7.h5", "only-12.h5")
        with marlnb.merge([folder / name for name in names], folder / "merged.h5") as merged:
            assert merged.checkpoint[0] == 12
        join([folder / name for name in names], folder / "joined.h5", renumber=True)
        with marlnb.Recording.open(folder / "joined.h5") as joined:
            assert joined.checkpoint[0] == 12


def test_all_checkpoints_and_the_same_reopened(run: Run) -> None:
    options = {"episodes": 2, "n_envs": 2, "sites": [], "progress": False, "exist": "open"}
    with record(run, checkpoint="all", **options) as recording:  # type: ignore[arg-type]
        assert recording.checkpoints["iteration"].tolist() == [7, 8, 12] and recording.checkpoint[0] == 12
    stamp = recording.path.stat().st_mtime_ns
    record(run, checkpoint="all", **options).close()  # type: ignore[arg-type]
    assert recording.path.stat().st_mtime_ns == stamp
    with pytest.raises(RecordingError, match="checkpoint"):
        record(run, checkpoint=[7, 12], **options)  # type: ignore[arg-type]
    with pytest.raises(RecordingError, match="at least one checkpoint, each once"):
        record(run, checkpoint=[7, 7], name="twice")


def test_edits_are_in_force_and_stored_in_the_settings(run: Run) -> None:
    edits = [Ablate("a/actor/gru", units=(1, 2), agents=("a_2",)), Ablate("b/critic/gru", value=0.5)]
    options = {"episodes": 4, "n_envs": 2, "seed": 5}
    with (
        record(run, edits=edits, name="edited", sites="*", progress=False, **options) as edited,  # type: ignore[arg-type]
        record(run, name="plain", sites="*", progress=False, **options) as plain,  # type: ignore[arg-type]
    ):
        state = edited["a/actor/gru"].to_numpy()
        assert not state[:, 2, [1, 2]].any() and state[:, 2, [0, 3]].any() and state[:, 0].all()
        assert (edited["b/critic/gru"].to_numpy() == 0.5).all()
        entering = edited.recurrent("a").sel(agent="a_2", unit=[1, 2]).to_numpy()
        assert not entering.any() and plain.recurrent("a").sel(agent="a_2", unit=[1, 2]).to_numpy().any()
        head = edited["a/actor/head"].to_numpy()
        np.testing.assert_allclose(head[:, 0], plain["a/actor/head"].to_numpy()[:, 0], atol=1e-6)  # recomputed there
        assert not np.allclose(head[:, 2], plain["a/actor/head"].to_numpy()[:, 2])
        assert edited.settings["edits"] == json.loads(json.dumps([edit.to_json() for edit in edits]))
        assert "edits" not in plain.settings
        filled = {recording.file["activations/a/actor/gru"].attrs["filled"] for recording in (edited, plain)}
        assert filled == {"captured", "recomputed"}
        returns = evaluate(run, edits=edits, **options).table.returns["a"]  # type: ignore[arg-type, union-attr]
        assert np.array_equal(edited.episodes[["a_0", "a_1", "a_2"]], returns)


def test_numbers_that_an_edit_draws_begin_with_the_first_episode(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", SimpleSpreadConfig(max_cycles=6), centralised=False)
    options = {"edits": [Noise("agent/actor/hidden_1", scale=3.0)], "episodes": 4, "n_envs": 2, "seed": 5}
    returns = evaluate(run, **options).table.returns["agent"]  # type: ignore[arg-type, union-attr]
    with record(run, progress=False, **options) as recording:  # type: ignore[arg-type]
        np.testing.assert_array_equal(recording.episodes[recording.agents], returns)
        with pytest.raises(RecordingError, match=r"draw random numbers \(noise of agent/actor/hidden_1\)"):
            marlnb.replay(recording, 0)


def test_an_edit_of_a_critic_is_in_force_in_its_window(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", LivesConfig(), centralised=False)

    def values(name: str, *edits: Ablate) -> np.ndarray:
        with record(run, episodes=4, n_envs=2, seed=5, sites=[], edits=edits, name=name, progress=False) as recording:
            t.append(recording.rows["t"].to_numpy())
            return recording.steps("a", "value").to_numpy()

    t: list[np.ndarray] = []
    plain, always = values("plain"), values("always", Ablate("a/critic/hidden_1"))
    early = values("early", Ablate("a/critic/hidden_1", t=(0, 2)))
    np.testing.assert_allclose(early, np.where(t[0][:, None] < 2, always, plain), atol=1e-6)
    assert not np.allclose(always, plain)


def test_a_recording_knows_the_code_that_made_it(run: Run) -> None:
    with record(run, episodes=1, progress=False) as recording:
        attributes = dict(recording.file.attrs)
    folder, digest = Path(marlnb.__file__).parent, hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    assert attributes["code_sha256"] == digest.hexdigest()
    assert len(attributes["code_commit"]) in (0, 40) and attributes["generator_seed"] > 0
