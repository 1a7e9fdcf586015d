"""The recording panel without a browser: sites in a tree, their estimated cost, and the recorded file."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from marlnb.experiment import Experiment
from marlnb.models.hooks.capture import all_sites
from marlnb.models.hooks.sites import match_sites
from marlnb.recording.capture.config import RecordingConfig
from marlnb.recording.capture.plan import FILE_OVERHEAD_BYTES
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.layout import Field
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.run import Run
from marlnb.training.train import train
from marlnb.widgets.core.background import wait_for_requests
from marlnb.widgets.core.site_tree import globs_for
from marlnb.widgets.microscope.microscope import Microscope
from marlnb.widgets.recordings.recording_panel import RecordingPanel
from marlnb.widgets.runs.attach import attach
from tests.widgets.trained import original, run, text_of, until  # noqa: F401


@pytest.fixture
def panel(run: Run) -> Iterator[RecordingPanel]:  # noqa: F811
    made = RecordingPanel(run)
    until(lambda: made.plan is not None)
    yield made
    if made.recording is not None:
        made.recording.close()


def _settled(panel: RecordingPanel) -> None:
    until(lambda: panel.plan is not None)


def test_the_tree_shows_the_sites_of_the_policies(panel: RecordingPanel) -> None:
    units = {"hidden_1": 64, "hidden_2": 64}  # of an mlp, as its options say; a head has the actions, or one value
    expected = [
        (f"{group}/{part}/{layer}", 1, units.get(layer, heads[part]))
        for group, heads in {"speaker": {"actor": 3, "critic": 1}, "listener": {"actor": 5, "critic": 1}}.items()
        for part in ("actor", "critic")
        for layer in ("hidden_1", "hidden_2", "head")
    ]
    assert [(site["name"], site["agents"], site["units"]) for site in panel.tree.sites] == expected
    assert panel.tree.chosen == [name for name, *_ in expected if "/actor/" in name]  # as `record` has it


def test_globs_mean_what_is_ticked(panel: RecordingPanel) -> None:
    sites, names = all_sites(panel.run.policies()), panel.tree.names
    for several in (1, 2, 3, 6, 11):
        for chosen in list(combinations(names, several))[::7]:
            assert [site.name for site in match_sites(sites, globs_for(chosen, names))] == list(chosen)
    assert globs_for(names, names) == ["*"] and globs_for([], names) == []
    assert globs_for(names[:3], names) == ["speaker/actor/*"] and globs_for(names[:6], names) == ["speaker/*"]


def test_options_are_those_of_record(panel: RecordingPanel) -> None:
    assert RecordingConfig(**panel.choices) == RecordingConfig()
    assert text_of(panel._code).endswith("recording = mnb.record(run)\nmnb.microscope(recording)")
    helps = {name: field.item.metadata["help"] for name, field in panel.form.fields.items()}
    assert helps["explore"] == "sample actions instead of taking the most likely" and all(helps.values())


def test_the_file_holds_the_choices_and_has_the_estimated_size(panel: RecordingPanel) -> None:
    chosen = ["speaker/actor/hidden_1", "listener/actor/hidden_1", "listener/actor/hidden_2", "listener/critic/head"]
    panel.tree.chosen = chosen
    panel.form.set({"episodes": 80, "dtype": "float16", "values": False, "explore": True})
    panel.checkpoint.value = ("3",)
    _settled(panel)
    plan = panel.plan
    assert plan is not None and plan.rows == 80 * 25 and plan.bounded  # an episode of MPE has 25 steps
    command = text_of(panel._command)
    panel.record().task.wait(60)
    made = panel.recording
    assert made is not None and made.complete and made.sites == chosen and len(made) == plan.rows
    assert made.checkpoint[0] == 3 and made.settings["explore"] and "value" not in made.fields("speaker")
    assert all(made.file[f"activations/{site}"].dtype.name == "float16" for site in chosen)
    rows_bytes = plan.size_bytes - FILE_OVERHEAD_BYTES  # the part of the estimate that is not rows
    assert rows_bytes < made.path.stat().st_size < plan.size_bytes
    assert rows_bytes == 80 * 25 * sum(field.row_bytes for field in plan.fields)
    assert panel.list.table.content["names"] == ["recording"] and panel.choices["name"] == "recording_2"
    panel.list.open()
    until(lambda: panel.list.microscope is not None or "alert" in panel.list._microscope_box.children[0].value)
    assert isinstance(panel.list.microscope, Microscope)

    words = shlex.split(f"{command} --name commanded")
    subprocess.run([sys.executable, "-m", *words], check=True, capture_output=True)
    with Recording.open(panel.run.recordings["commanded"]) as same:
        for site in chosen:
            # another process may sum in another order: at most one step of float16
            np.testing.assert_allclose(same[site].to_numpy(), made[site].to_numpy(), rtol=2**-10, atol=1e-5)


def test_the_summary_is_that_of_the_recording_that_is_opened(panel: RecordingPanel) -> None:
    for n, name in ((2, "two"), (3, "three")):
        record(panel.run, episodes=n, sites=[], name=name, progress=False).close()
    listed = panel.list
    listed.refresh()
    listed.table.chosen = "two"
    wait_for_requests()
    listed.table.chosen = "three"
    listed.open()  # at once, while the summary is read
    wait_for_requests()
    assert isinstance(listed.microscope, Microscope) and listed.microscope.recording.path.name == "three.h5"
    assert "3 episodes" in text_of(listed._summary), text_of(listed._summary)


def test_a_link_to_a_file_that_is_gone_is_not_listed(run: Run) -> None:  # noqa: F811
    (run.path / "recordings").mkdir(exist_ok=True)
    (run.path / "recordings" / "gone.h5").symlink_to(run.path / "elsewhere.h5")
    panel = attach(run)
    panel.tabs.selected_index = list(panel._pages).index("Recordings")
    opened = panel.opened["Recordings"]
    assert isinstance(opened, RecordingPanel) and opened.list.table.content["names"] == [] == list(run.recordings)
    assert opened.widget in panel._pages["Recordings"].children
    panel.close()


def test_the_estimate_counts_bytes_as_the_axes_do(panel: RecordingPanel) -> None:
    panel.tree.chosen = ["listener/actor/hidden_1"]
    _settled(panel)
    assert panel.plan is not None
    sizes = {field.path: field for field in panel.plan.fields}
    assert isinstance(sizes["activations/listener/actor/hidden_1"], Field)
    assert sizes["activations/listener/actor/hidden_1"].row_bytes == 64 * 4
    assert "activations/listener/actor/hidden_2" not in sizes
    assert "activations/listener/actor/hidden_1row × 1 agent × 64 unitfloat321.28 MB" in text_of(panel._fields)
    panel.form.fields["episodes"].enter("400")
    _settled(panel)
    assert panel.plan.rows == 400 * 25 and "400 episodes, at most 10,000 rows" in text_of(panel._estimate)


def test_a_recording_that_is_stopped_stays_incomplete(panel: RecordingPanel) -> None:
    panel.form.fields["episodes"].enter("100_000")
    _settled(panel)
    work = panel.record()
    until(lambda: " rows a second" in text_of(panel._line) and not text_of(panel._line).startswith("0 of"))
    seen = int(text_of(panel._line).split(" of ")[0].replace(",", ""))
    panel.stop()
    work.task.wait(60)
    assert "stopped" in text_of(panel._line) and "marked incomplete" in text_of(panel._line)
    with Recording.open(panel.run.recordings["recording"]) as stored:
        assert not stored.complete and len(stored.episodes) >= seen > 0
        assert len(stored) == len(stored.episodes) * 25


def test_invalid_choices_disable_the_button(panel: RecordingPanel) -> None:
    panel.form.fields["episodes"].enter("0")
    assert "at least 1" in panel.form.problems["episodes"] and panel._record.disabled
    panel.form.fields["episodes"].enter("2000")
    _settled(panel)
    assert panel.plan is not None
    panel.form.fields["episodes"].enter(str(2 * 2000 * panel.plan.free_bytes // panel.plan.size_bytes))
    until(lambda: "record fewer" in text_of(panel._estimate))
    assert panel._record.disabled
    panel.form.fields["episodes"].enter("5")
    _settled(panel)
    assert not panel._record.disabled
    panel.form.fields["agents"].enter("listner_0")
    until(lambda: 'did you mean "listener_0"' in text_of(panel._estimate) or "listener_0" in text_of(panel._estimate))
    assert panel._record.disabled
    panel.form.fields["agents"].enter("")
    panel.checkpoint.value = ()
    assert "choose at least one" in text_of(panel._estimate) and panel._record.disabled


def test_custom_labels_and_several_checkpoints(run: Run) -> None:  # noqa: F811
    panel = RecordingPanel(
        run, labels={"late": lambda time_step: time_step.t > 12, "early": lambda time_step: time_step.t < 3}
    )
    _settled(panel)
    panel._label_boxes["early"].value = False
    panel.form.set({"episodes": 3})
    panel.checkpoint.value = ("3", "9")
    _settled(panel)
    panel.record().task.wait(60)
    made = panel.recording
    assert made is not None and "late" in made.labels and "early" not in made.labels
    assert made.label("late").to_numpy().reshape(6, 25).sum(axis=1).tolist() == [12] * 6  # t = 13 to 24
    assert made.checkpoints["iteration"].tolist() == [3, 9]
    made.close()


def test_a_policy_without_sites_is_recorded_as_well(tmp_path: Path) -> None:
    words = ["env=matrix/climbing", "algorithm=mappo", "algorithms.agent=random", "n_envs=4", "frames=200", "threads=1"]
    panel = RecordingPanel(train(Experiment.compose(*words), tmp_path / "run"))
    _settled(panel)
    assert panel.tree.names == [] and not panel._record.disabled
    panel.form.set({"episodes": 7})
    panel.record().task.wait(60)
    assert panel.recording is not None and panel.recording.sites == [] and len(panel.recording.episodes) == 7
    panel.recording.close()


def test_without_a_checkpoint_the_panel_asks_for_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = Run.create(tmp_path_factory.mktemp("empty") / "run", Experiment.compose("env=mpe/simple_spread"))
    panel = RecordingPanel(empty)
    until(lambda: "Recording needs a checkpoint" in text_of(panel._sites))
    assert panel._record.disabled and panel.tree.sites == []
