"""Edits that read recordings: patches reproduce recorded activations, statistics match, other files are errors."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from marlnb.errors import ConfigError
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.capture import capture
from marlnb.models.hooks.edit import Edit
from marlnb.models.hooks.edits import Ablate
from marlnb.models.hooks.edits_patch import Patch
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.activation_source import RecordedActivations
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.extract import extract
from marlnb.training.collect.episodes import TimeStep, play
from marlnb.training.learners import build_learners
from marlnb.training.runs.checkpoints.checkpoint import save_checkpoint
from marlnb.training.runs.run import Run
from tests.recording.runs import LivesConfig, make_run

CASES = [("mlp", True), ("mlp", False), ("gru", True), ("gru", False)]


def make(path: Path, kind: str, share: bool) -> tuple[Run, Recording]:
    model = MLPConfig(hidden=(8,), share_parameters=share)
    actor = GRUConfig(hidden=(8,), recurrent_size=6, share_parameters=share) if kind == "gru" else model
    run = make_run(path / "run", LivesConfig(), actor, model)
    return run, record(run, episodes=9, seed=100, n_envs=4, values=False, fill="captured", progress=False)


class Played:
    """Logits, observations and states by (episode, t) of group a."""

    def __init__(self, run: Run, edits: list[Edit], *, seed: int = 100, n_envs: int = 4) -> None:
        self.logits: dict[tuple[int, int], np.ndarray] = {}
        policies = run.policies()
        with run.build_env(n_envs) as env, edited(policies, edits):
            play(env, policies, episodes=9, seed=seed, explore=False, callback=self)

    def before_step(self, time_step: TimeStep) -> None:
        for copy, (episode, t) in enumerate(zip(time_step.episode.tolist(), time_step.t.tolist())):
            if episode >= 0:
                self.logits[episode, t] = time_step.output["a"].logits[copy].numpy().copy()

    def after_step(self, time_step: TimeStep, step: object, ended: bool) -> None:
        pass


@pytest.mark.parametrize(("kind", "share"), CASES)
def test_patching_with_its_own_activations_changes_nothing_and_with_others_reproduces_them(
    kind: str, share: bool, tmp_path: Path
) -> None:
    run, recording = make(tmp_path, kind, share)
    plain = Played(run, [], n_envs=3)
    layer = "gru" if kind == "gru" else "hidden_1"
    same = Played(run, [Patch(f"a/actor/{layer}", recording), Patch("a/observation", recording)], n_envs=3)  # type: ignore[arg-type]
    assert plain.logits.keys() == same.logits.keys()
    # matmuls of other batch sizes may differ in the last bit from those recorded, so equal copies are compared exactly
    exact, again = Played(run, [Patch(f"a/actor/{layer}", recording)]), Played(run, [])  # type: ignore[arg-type]
    for key, logits in again.logits.items():
        assert np.array_equal(exact.logits[key], logits)
        np.testing.assert_allclose(same.logits[key], logits, atol=1e-5)
    # another seed, patched whole: the recorded logits of living agents, at whatever step both episodes have
    other = Played(run, [Patch("a/actor/head", recording)], seed=500)  # type: ignore[arg-type]
    rows = recording.rows
    recorded = recording["a/actor/head"].to_numpy()
    mask = recording.steps("a", "action_mask").to_numpy() & recording.steps("a", "alive").to_numpy()[..., None]
    n = 0
    for row, (episode, t) in enumerate(zip(rows["episode"], rows["t"])):
        if (episode, t) in other.logits:
            assert np.array_equal(other.logits[episode, t][mask[row]], recorded[row][mask[row]])
            n += 1
    assert n > 30
    recording.close()


def test_other_episodes_times_and_agents(tmp_path: Path) -> None:
    run, recording = make(tmp_path, "mlp", True)
    head, rows = recording["a/actor/head"].to_numpy(), recording.rows
    where = {(e, t): row for row, (e, t) in enumerate(zip(rows["episode"], rows["t"]))}
    alive = recording.steps("a", "alive").to_numpy()  # a_1 is dead from t = 3 on
    plain = Played(run, [])
    cases = {
        "other": (Patch("a/actor/head", recording, episode="other"), lambda e, t: ((e + 1) % 9, t)),  # type: ignore[arg-type]
        "shifted": (Patch("a/actor/head", recording, shift=-1), lambda e, t: (e, t - 1)),  # type: ignore[arg-type]
        "fixed": (Patch("a/actor/head", recording, episode=3, at=2), lambda e, t: (3, 2)),  # type: ignore[arg-type]
        "one is dead": (Patch("a/actor/head", recording, episode=3, at=4), lambda e, t: (3, 4)),  # type: ignore[arg-type]
    }
    for edit, donor in cases.values():
        patched = Played(run, [edit])
        for (e, t), logits in patched.logits.items():
            row = where.get(donor(e, t))
            allowed = logits > -1e30
            own = plain.logits[e, t]
            expected = own if row is None else np.where(alive[row][:, None], head[row], own)
            assert np.array_equal(logits[allowed], expected[allowed])
    patched = Played(run, [Patch("a/actor/head", recording, from_agents="a_2", agents=("a_0",))])  # type: ignore[arg-type]
    for key, logits in patched.logits.items():
        allowed = logits[0] > -1e30
        assert np.array_equal(logits[0][allowed], head[where[key]][2][allowed])
        assert np.array_equal(logits[1:], plain.logits[key][1:])
    with pytest.raises(ConfigError, match="no episode 70; it has 9, from 0 to 8"):
        Played(run, [Patch("a/actor/head", recording, episode=70)])  # type: ignore[arg-type]
    recording.close()


def test_means_and_resamples_are_of_the_rows_at_which_an_agent_lived(tmp_path: Path) -> None:
    run, recording = make(tmp_path, "mlp", True)
    site = "a/actor/hidden_1"
    values, alive = recording[site].to_numpy(), recording.steps("a", "alive").to_numpy()
    policy = run.policies()["a"]
    observation = torch.rand(5, 3, 3)
    for kind in ("mean", "resample"):
        edit = Ablate(site, kind, source=recording, agents=("a_1",), units=(2, 5))  # type: ignore[arg-type]
        with edited(policy, [edit]):
            with capture(policy, site) as activations:
                policy.act(observation)
            output = activations[site][:, 1, [2, 5]].numpy()
        lived = values[:, 1][alive[:, 1]][:, [2, 5]]
        assert alive[:, 1].sum() == 27 < len(values)  # three steps of each of nine episodes
        if kind == "mean":
            np.testing.assert_allclose(output, np.tile(lived.mean(0), (5, 1)), atol=1e-6)
        else:
            assert all(any(np.array_equal(row, candidate) for candidate in lived) for row in output)
    recording.close()


def test_an_agents_units_are_resampled_from_one_row_at_all_sites(tmp_path: Path) -> None:
    """They do not depend on which other agents are edited; those of other agents and seeds are others."""
    run, recording = make(tmp_path, "mlp", True)
    policies, sites = run.policies(), ["a/actor/hidden_1", "a/actor/head", "b/actor/hidden_1"]
    observations = {group.name: torch.rand(40, group.n_agents, 3) for group in run.spec.groups}

    def drawn(*edits: Edit) -> dict[tuple[str, int], list[int]]:
        """By site and agent, the rows of the recording."""
        with edited(policies, edits), capture(policies, sites) as activations:
            for name, policy in policies.items():
                policy.act(observations[name])
        rows = {}
        for site in sites:
            values = recording[site].to_numpy()
            for agent in range(values.shape[1]):
                equal = (values[None, :, agent] == activations[site].numpy()[:, None, agent]).all(-1)
                rows[site, agent] = [int(matches.argmax()) if matches.any() else -1 for matches in equal]
        return rows

    rows = drawn(Ablate("*/actor/*", "resample", source=recording))  # type: ignore[arg-type]
    assert all(-1 not in of_agent for of_agent in rows.values())
    a = [rows["a/actor/hidden_1", agent] for agent in range(3)]
    assert [rows["a/actor/head", agent] for agent in range(3)] == a
    assert len({tuple(of_agent) for of_agent in (*a, rows["b/actor/hidden_1", 0])}) == 4
    alone = drawn(Ablate("a/actor/head", "resample", source=recording, agents=(1,)))  # type: ignore[arg-type]
    assert alone["a/actor/head", 1] == a[1]
    other = drawn(Ablate("a/actor/head", "resample", source=recording, seed=1))  # type: ignore[arg-type]
    assert other["a/actor/head", 1] != a[1]
    recording.close()


def test_statistics_of_several_networks_are_an_error(tmp_path: Path) -> None:
    """A mean over both halves of the file would be that of neither network; a copy of one half has its own."""
    run, recording = make(tmp_path, "mlp", True)
    recording.close()
    learners = build_learners(replace(run.experiment, seed=5), run.spec, "cpu")
    state = {"learners": {name: learner.state_dict() for name, learner in learners.items()}}
    save_checkpoint(run.path / "checkpoints", state, iteration=9, frames=0, returns={})
    policy, site = run.policies(7)["a"], "a/actor/hidden_1"
    with record(run, checkpoint=[7, 9], episodes=5, name="two", values=False, progress=False) as two:
        for kind in ("mean", "resample"):
            edit = Ablate(site, kind, source=two)  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match=r"spans checkpoints \[7, 9\].*mnb.extract"), edited(policy, [edit]):
                pass
        values = two[site].sel(checkpoint=7).to_numpy()[:, 0]
        extract(two, tmp_path / "seven.h5", episodes=range(5)).close()
    edit = Ablate(site, "mean", source=str(tmp_path / "seven.h5"))
    with edited(policy, [edit]), capture(policy, site) as activations:
        policy.act(torch.rand(1, 3, 3))
    np.testing.assert_allclose(activations[site][0, 0].numpy(), values.mean(0), atol=1e-5)


def test_a_pinned_edit_refuses_another_recording(tmp_path: Path) -> None:
    run, recording = make(tmp_path, "mlp", True)
    recording.close()
    edit = Patch("a/actor/hidden_1", str(recording.path)).pinned()
    assert edit.digest == RecordedActivations(str(recording.path)).digest  # type: ignore[attr-defined]
    with edited(run.policies(), [edit]):
        pass
    recording.path.unlink()
    record(run, episodes=9, seed=101, n_envs=4, values=False, fill="captured", progress=False).close()
    with (
        pytest.raises(ConfigError, match="is not the one that this edit was made with"),
        edited(run.policies(), [edit]),
    ):
        pass


def test_an_edit_opens_its_recording_in_a_process_that_has_not_imported_recordings(tmp_path: Path) -> None:
    _, recording = make(tmp_path, "mlp", True)
    recording.close()
    code = (
        "import sys; from marlnb.models.hooks.edits_patch import Patch;"
        "assert not any(name.startswith('marlnb.recording') for name in sys.modules);"
        "print(Patch('a/actor/hidden_1', sys.argv[1]).pinned().digest)"
    )
    command = [sys.executable, "-c", code, str(recording.path)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=200).stdout
    assert output.strip() == RecordedActivations(str(recording.path)).digest
