"""backfill: what is computed afterwards is what was recorded at the time, to 1e-5."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.algorithms.configs.ppo import IPPOConfig
from marlnb.algorithms.configs.sac import ISACConfig
from marlnb.config import AlgorithmConfig, ModelConfig
from marlnb.errors import RecordingError
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.edits import Ablate
from marlnb.models.networks.configs.gnn import GNNConfig
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from marlnb.training.policies.agents import Agents
from tests.disk_limit import max_file_bytes
from tests.recording.runs import LivesConfig, make_run


@pytest.mark.parametrize(
    ("model", "every", "segment_bytes", "dtype"),
    [(MLPConfig(), 1, 40_000, "bfloat16"), (GRUConfig(), 3, None, "float32")],
)
def test_backfilled_equals_recorded(
    tmp_path: Path, model: ModelConfig, every: int, segment_bytes: int | None, dtype: str
) -> None:
    run = make_run(tmp_path / "run", LivesConfig(shortest=20), model)
    options = {"episodes": 12, "n_envs": 4, "every": every, "dtype": dtype, "progress": False}
    whole = record(run, name="whole", sites="*", **options)  # type: ignore[arg-type]
    lacking = record(run, name="lacking", sites="b/actor/head", segment_bytes=segment_bytes, **options)  # type: ignore[arg-type]
    rows, before = len(lacking), lacking.steps("a", "observation").to_numpy()
    pinned = Ablate("b/actor/head", "mean", source=lacking).pinned()  # type: ignore[arg-type]
    assert mnb.backfill(lacking, "*") is lacking
    with Recording.open(lacking.path) as filled:
        assert sorted(filled.sites) == sorted(whole.sites) and len(filled) == rows and filled.complete
        assert np.array_equal(filled.steps("a", "observation").to_numpy(), before)
        assert any("/critic/" in site for site in filled.sites)
        for site in whole.sites:
            a, b = whole[site], filled[site]
            assert (a.dims, a.shape, a.dtype_stored) == (b.dims, b.shape, b.dtype_stored)
            tolerance = 1e-5 if dtype == "float32" else 2**-8
            scale = max(1.0, float(np.abs(a.to_numpy()).max()))
            assert np.abs(a.to_numpy() - b.to_numpy()).max() <= tolerance * scale, site
        assert filled.file["activations/a/actor/hidden_1"].attrs["filled"] == "backfilled"
        assert "filled" not in filled.file["steps/a/reward"].attrs
    assert [item.name for item in lacking.path.parent.iterdir() if item.name.startswith(".")] == []
    with edited(run.policies(), [pinned]):  # the recording is still the one that the edit was made with
        pass
    lacking.release()
    same = {"name": "lacking", "sites": "b/actor/head", "segment_bytes": segment_bytes, "exist": "open"}
    with record(run, **same, **options) as reopened:  # type: ignore[arg-type]
        assert reopened.sites[0] == "b/actor/head" and len(reopened.sites) == len(whole.sites)
    with pytest.raises(RecordingError, match="already"):
        mnb.backfill(lacking, "a/actor/hidden_1")


def test_what_was_not_recorded_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", LivesConfig(), GRUConfig())
    part = record(run, episodes=4, n_envs=2, sites=[], agents=["a_0", "a_2"], progress=False)
    mnb.backfill(part, "a/actor/*")
    whole = record(run, name="whole", episodes=4, n_envs=2, progress=False)
    for site in part.sites:
        expected = whole[site].sel(agent=["a_0", "a_2"]).to_numpy()
        np.testing.assert_allclose(part[site].to_numpy(), expected, atol=1e-5)
    with pytest.raises(RecordingError, match=r"needs the observations of \['a_1', 'b_0'\]"):
        mnb.backfill(part, "a/critic/*")
    bare = mnb.extract(whole, tmp_path / "run" / "recordings" / "bare.h5", sites=[], fields=["observation", "state"])
    with pytest.raises(RecordingError, match="the actor's recurrent states, which were not recorded"):
        mnb.backfill(bare, "a/actor/*")
    shutil.copy(part.path, tmp_path / "moved.h5")
    with pytest.raises(RecordingError, match=r"in no run folder, .* recordings of its run, .* policies="):
        mnb.backfill(tmp_path / "moved.h5", "a/critic/*")


@pytest.mark.parametrize(
    ("actor", "algorithm"), [(MLPConfig(), IPPOConfig()), (GNNConfig(), IPPOConfig()), (MLPConfig(), ISACConfig())]
)
def test_a_decentralised_critic_needs_no_other_agents(
    tmp_path: Path, actor: ModelConfig, algorithm: AlgorithmConfig
) -> None:
    run = make_run(tmp_path / "run", LivesConfig(), actor, MLPConfig(), algorithm=algorithm)
    options: dict[str, Any] = {"episodes": 4, "n_envs": 2, "progress": False}
    with (
        record(run, sites=[], agents=["a_0", "a_2"], **options) as part,
        record(run, sites="a/critic/*", name="whole", **options) as whole,
    ):
        mnb.backfill(part, "a/critic/*")
        for site in whole.sites:
            expected = whole[site].sel(agent=["a_0", "a_2"]).to_numpy()
            np.testing.assert_allclose(part[site].to_numpy(), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("actor", "critic", "algorithm"),
    [(MLPConfig(), GNNConfig(), IPPOConfig()), (GNNConfig(), MLPConfig(), ISACConfig())],
)
def test_a_critic_that_reads_the_group_needs_all_its_agents(
    tmp_path: Path, actor: ModelConfig, critic: ModelConfig, algorithm: AlgorithmConfig
) -> None:
    run = make_run(tmp_path / "run", LivesConfig(), actor, critic, algorithm=algorithm)
    with (
        record(run, episodes=2, n_envs=1, sites=[], agents=["a_0", "a_2"], progress=False) as part,
        pytest.raises(RecordingError, match=r"needs the observations of \['a_1'\]"),
    ):
        mnb.backfill(part, "a/critic/*")


def test_what_float16_cannot_hold_is_an_error(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", LivesConfig(), centralised=False)
    policies = run.policies()
    with torch.no_grad():
        for parameter in policies["a"].parameters():
            parameter *= 1e6
    agents = Agents(policies, run.experiment.env, tmp_path)
    with record(agents, episodes=2, n_envs=1, sites=[], dtype="float16", progress=False) as part:
        with pytest.raises(RecordingError, match="above float16's maximum of 65504"):
            mnb.backfill(part, "a/critic/*", policies=policies)
        assert part.sites == []


@pytest.mark.parametrize(
    ("model", "dtype", "field"),
    [(MLPConfig(), "float32", "logits"), (GRUConfig(), "bfloat16", "logits"), (MLPConfig(), "float32", "value")],
)
def test_the_units_of_other_weights_are_not_added(tmp_path: Path, model: ModelConfig, dtype: str, field: str) -> None:
    """Policies that learn have the same tensors, so the recording's agents can have other weights by now."""
    run = make_run(tmp_path / "run", LivesConfig(), model)
    policies, part = run.policies(), {"logits": "actor", "value": "critic"}[field]
    with record(run, episodes=4, n_envs=2, sites=[], dtype=dtype, progress=False) as recording:
        mnb.backfill(recording, "a/*/hidden_1", policies=policies)
        with torch.no_grad():
            for parameter in policies["a"].parameters():
                parameter += 0.3
        with pytest.raises(RecordingError, match=f"made by other weights than those of policies=: {field} of 'a'"):
            mnb.backfill(recording, f"a/{part}/head", policies=policies)
        assert f"a/{part}/head" not in recording.sites


def test_tools_name_a_recording_without_rows(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", LivesConfig(), centralised=False)

    def stop(progress: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(run, episodes=4, progress=False, on_step=stop)
    tools: list[Callable[[Recording], object]] = [
        mnb.to_pandas,
        lambda recording: mnb.extract(recording, tmp_path / "part.h5", episodes=slice(0, 3)),
        lambda recording: mnb.to_nwb(recording, tmp_path / "part.nwb"),
        lambda recording: mnb.backfill(recording, "*/critic/*"),
    ]
    with Recording.open(run.recordings["recording"]) as recording:
        assert len(recording) == 0
        for tool in tools:
            with pytest.raises(RecordingError, match=r"recording\.h5 has no rows"):
                tool(recording)


def test_a_file_that_is_open_elsewhere_is_unchanged(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", LivesConfig(), centralised=False)
    with record(run, episodes=2, sites=[], progress=False) as recording:
        with pytest.raises(RecordingError, match="it is open elsewhere"):
            mnb.backfill(recording.path, "a/actor/*")
        assert recording.sites == []
    with mnb.backfill(recording.path, "a/actor/head") as filled:
        assert filled.sites == ["a/actor/head"]


def test_a_failure_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", LivesConfig(), centralised=False)
    recording = record(run, episodes=4, n_envs=2, sites=[], progress=False)
    before = recording.path.read_bytes()

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(RecordingError, match=r"is full: .* needed; it is unchanged"):
        mnb.backfill(recording, "a/actor/hidden_1")
    assert recording.path.read_bytes() == before
    assert sorted(item.name for item in recording.path.parent.iterdir()) == ["recording.h5"]


def test_a_full_disk_ends_no_process_that_computes_units(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", LivesConfig(), centralised=False)
    recording = record(run, episodes=4, n_envs=2, sites=[], progress=False)
    with max_file_bytes(2000), pytest.raises(RecordingError, match=r"a limit on the size of files is .*is unchanged"):
        mnb.backfill(recording, "a/actor/hidden_1")
    assert sorted(item.name for item in recording.path.parent.iterdir()) == ["recording.h5"]
