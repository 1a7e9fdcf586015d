"""The snapshot below a microscope, in a notebook that was executed without a page."""

from __future__ import annotations

import base64
from pathlib import Path

import nbformat
import pytest
from matplotlib import style
from matplotlib.colors import to_hex

import marlnb as mnb
from marlnb.plots.canvas import INK
from marlnb.widgets.microscope.microscope import Microscope
from tests.widgets.kernels import run_cells

CELLS = (
    "import marlnb as mnb\nscope = mnb.microscope({path!r}, 3, t=5)\nscope",
    "scope.go(t=9)",
    "for t in range(12):\n    scope.go(t=t)\nscope.wait(60)",
    "assert scope.t == 11",
)


def test_the_snapshot_shows_the_last_state(listener: mnb.Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    texts, pictures = [], []

    def ended(cell: nbformat.NotebookNode, **_: object) -> None:
        (data,) = [output.data for output in made.cells[0].outputs if "image/png" in output.get("data", {})]
        texts.append(data["text/plain"].partition(";")[0])
        pictures.append(base64.b64decode(data["image/png"]))

    made = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell.format(path=str(listener.path))) for cell in CELLS]
    )
    run_cells(made, on_cell_executed=ended)
    assert texts == [f"Microscope(recording.h5, episode 3, step {t}" for t in (5, 9, 11, 11)]
    assert len(set(pictures)) == 3 and pictures[2] == pictures[3]
    states = made.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"].values()
    (t,) = [model["state"]["t"] for model in states if "bookmarks" in model["state"]]
    assert t == 11


def title_and_names(scope: Microscope) -> tuple[str, list[str]]:
    """The title of the snapshot, and the agents that the legend of its rewards names."""
    (part,) = scope.figure().subfigs
    (legend,) = [ax.get_legend() for ax in part.axes if ax.get_legend() is not None]
    return part.get_suptitle(), [text.get_text() for text in legend.get_texts()]


def test_a_snapshot_of_some_agents_says_how_many_there_are(
    listener: mnb.Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = mnb.microscope(listener, 3, t=5)
    title, names = title_and_names(scope)
    assert "agents" not in title and names == ["speaker_0", "listener_0"]
    monkeypatch.setattr("marlnb.widgets.microscope.snapshot.MAX_AGENTS", 1)
    title, names = title_and_names(scope)
    assert title.endswith("\n1 of 2 agents; show_agents([...]) shows others") and names == ["speaker_0"]
    scope.close()


def test_agents_without_the_layer_are_named_too_since_their_rewards_are_drawn(listener: mnb.Recording) -> None:
    sites = ["speaker/actor/hidden_1", "listener/actor/hidden_2"]  # as with unshared weights, each its own layers
    run = listener.path.parents[1]
    with mnb.record(run, episodes=2, sites=sites, name="own_layers", progress=False) as recording:
        scope = mnb.microscope(recording, layer="actor/hidden_2")
        title, names = title_and_names(scope)
        assert "agents" not in title and names == ["speaker_0", "listener_0"]
        scope.close()


def test_the_picture_is_dark_on_white_in_a_dark_style(listener: mnb.Recording) -> None:
    with style.context("dark_background"):
        figure = mnb.microscope(listener, 3, t=5).figure()
    assert {to_hex(face.get_facecolor()) for face in (figure, *figure.axes)} == {"#ffffff"}
    texts = [*figure.axes[1].get_legend().get_texts(), *figure.axes[2].get_xticklabels()]
    assert {to_hex(text.get_color()) for text in texts} == {INK}
