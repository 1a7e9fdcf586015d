"""Everything else that a notebook shows as HTML, each made with a hostile name in all of its texts."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ipywidgets as w
import nbformat
import numpy as np
import pandas as pd
from PIL import Image

import marlnb as mnb
from marlnb.analysis.benchmarking.comparison import Comparison, TaskScale
from marlnb.analysis.communication.communication_result import Combination, Communication
from marlnb.analysis.decoding.result import Decoding
from marlnb.analysis.decoding.score import DecodingScore, Gain
from marlnb.analysis.populations.league_report_result import LeagueReport, Measure
from marlnb.analysis.stats.mutual_information import MutualInformation
from marlnb.batch.batch import Batch
from marlnb.batch.benchmark.benchmark import Benchmark
from marlnb.batch.benchmark.spec import BenchmarkSpec
from marlnb.batch.job.job import JobStatus
from marlnb.batch.profile import Profile
from marlnb.batch.report.comparison_tables import PAGE, linked
from marlnb.batch.sweep.sweep import Sweep
from marlnb.codec import to_json
from marlnb.experiment import Experiment
from marlnb.galleries.card import Card, Finding, Score
from marlnb.galleries.entry import Entry
from marlnb.galleries.gallery import Gallery
from marlnb.models.hooks.directions import Direction
from marlnb.populations.evolution.lineage import Lineage, LineageFile
from marlnb.populations.league.summary import LeagueSummary
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.animation import Animation
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec
from marlnb.training.collect.episodes import EpisodeTable
from marlnb.training.policies.evaluation import Evaluation
from marlnb.training.runs.run import Run
from marlnb.widgets.forms.environment_panel import _picture_html
from marlnb.widgets.forms.part_form import _unavailable_html
from marlnb.widgets.populations.league_state import counts_html, payoff_html
from marlnb.widgets.recordings.recording_panel import RecordingPanel
from marlnb.widgets.runs.checkpoints_panel import CheckpointsPanel
from marlnb.widgets.runs.run_panel import RunPanel
from tests.fuzz.population_folders import EVOLUTION, LEAGUE, SPREAD, TINY
from tests.recording.runs import Lives, LivesConfig

GROUP = GroupSpec("g", ("a",), ObservationSpec((1,)), ActionSpec("discrete", n=(2,)))


def results(name: str) -> list[Any]:
    """Results of analyses."""
    score = DecodingScore(name, None, 10, 5, *[0.5] * 7, None, site=name, gains=(Gain("observation", *[0.1] * 5),))
    information = MutualInformation(name, name, *[0.1] * 9)
    texts = {"notes": (name,), "warnings": (name,)}
    players = pd.DataFrame(
        [{"seed": 0, "player": name, "side": name, "elo": 1.0, "alpha_rank": 1.0, "nash": 1.0, "cyclic_share": 0.0}]
    )
    return [
        Comparison((name,), {name: np.ones((2, 1))}, {}, np.ones(1), {name: TaskScale(0, 1, name, name)}, {}, (name,)),
        Communication(
            *(name, name, name, name, 1, information, information, information, information, None),
            *(np.zeros(1), np.zeros(1), 0.5, np.ones((1, 1)), (name,), (name,), 10, 5),
            (Combination(name, 0.5, 0.1, 0.5),),
            **texts,
        ),
        Decoding(name, name, "classification", (name,), 5, 20, (score,), **texts),
        LeagueReport(name, name, name, 10, None, (Measure(name, 0.0, True, (1.0,) * 3, 1.0, 0.5, 1.5),), players, 3),
        score,
        Direction(name, name, (1.0, 0.0), 0.0, 1.0, name),
    ]


def environments(name: str) -> list[Any]:
    """An environment, its episodes and an evaluation."""
    group = replace(GROUP, name=name, agents=(name,))
    env = Lives(LivesConfig(), 2)
    env.spec = EnvSpec(name, (group,))
    table = EpisodeTable(env.spec, np.ones(2, np.int64), np.zeros(2, np.int64), {name: np.ones((2, 1))})
    return [
        env,
        env.spec,
        table,
        Evaluation(name, "run", 1, 2, 0, False, {name: 1.0}, {name: 0.5}, 1.0, 1.0, table=table),
    ]


def folders(name: str, file_name: str, folder: Path) -> list[Any]:
    """A batch, a benchmark, an evolution, a league, and a gallery with its entry, in folders with hostile names."""
    inside = folder / file_name
    inside.mkdir(parents=True)
    evolution = Run.create(inside / "evolution", Experiment.compose(*SPREAD, *EVOLUTION, *TINY))
    lineage = LineageFile(evolution.path)
    lineage.cut(0)
    lineage.add([Lineage(0, k, None, name, options={name: name}, fitness=1.0) for k in range(2)])
    league = Run.create(inside / "league", Experiment.compose(*LEAGUE, *TINY))
    spec = BenchmarkSpec({"a": ("algorithm=ippo",)}, {"mpe/simple_spread": ()}, (0,))
    entry = made_entry(inside / "entry", name)
    benchmark = Benchmark(inside / "benchmark", spec, {})
    return [
        made_batch(inside, name),
        benchmark,
        evolution.population,
        league.league,
        entry,
        Gallery({name: entry.path}),
    ]


def made_batch(folder: Path, name: str) -> Batch:
    """A batch of a hostile value, whose first job has a page."""
    cells = [nbformat.v4.new_code_cell('x = ""', metadata={"tags": ["parameters"]})]
    source = folder / "plain.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), source)
    batch = Batch.create(folder / "batch", source, Sweep({"x": (name, "b")}, {}), Profile())
    first, second = batch.jobs()
    (first.folder / PAGE).write_text("")
    first.write_status(JobStatus("complete", attempt=1))
    second.write_status(JobStatus("failed", name, 1))
    return batch


def made_entry(folder: Path, name: str) -> Entry:
    """An entry of a gallery, as another person sends it."""
    folder.mkdir()
    texts = {"title": name, "summary": name, "kind": "mixed", "command": name, "limits": [name]}
    (folder / "recipe.yaml").write_text(json.dumps(texts))
    scores = (Score("run", 1, name, 1.0, 0.5, 1.5), Score("random", None, name, 0.0, 0.0, 0.0))
    finding = Finding(name, name, name, (name,))
    card = Card(name, name, 10, 1.0, 2, 0, scores, (finding,), {name: name}, {})
    (folder / "card.json").write_text(json.dumps(to_json(card)))
    return Entry(folder)


def other_pages(name: str, file_name: str, folder: Path, league: LeagueSummary) -> list[str]:
    """The HTML of all of these, and of tables of a league."""
    shown = [*results(name), *environments(name), *folders(name, file_name, folder)]
    batch = next(item for item in shown if isinstance(item, Batch))
    table = batch.table()[["job"]].assign(**{name: name})
    return [
        *(item._repr_html_() for item in shown),
        counts_html(league),
        payoff_html(league),
        linked(table, batch, folder),
        _unavailable_html({name: name}),
        _picture_html(b"", "png", name),
        made_animation(name)._repr_html_(),
    ]


def made_animation(name: str) -> Animation:
    picture = io.BytesIO()
    Image.new("RGB", (4, 4)).save(picture, format="PNG")
    return Animation([picture.getvalue()] * 2, [name] * 2, title=name, steps_per_s=5, note=name)


def panel_pages(run: Run, recording: Recording) -> Iterator[str]:
    """The HTML of the panels of a run, and of a recording."""
    for panel in (RecordingPanel(run), CheckpointsPanel(run), RunPanel(run), mnb.microscope(recording)):
        yield from (widget.value for widget in widgets_in(panel.widget) if isinstance(widget, w.HTML))
        panel.close()


def widgets_in(widget: w.Widget) -> Iterator[w.Widget]:
    yield widget
    for child in getattr(widget, "children", ()):
        yield from widgets_in(child)
