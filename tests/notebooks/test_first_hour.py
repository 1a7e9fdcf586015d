"""The first hour's path: its order and links, and the two steps that no other test executes.

The quickstart, own_environments and does_the_listener_listen have tests of their own names.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from marlnb.batch.job.execute import execute
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.run import Run
from tests.notebooks.small import SMALL

FOLDER = Path(__file__).parents[2] / "notebooks"
PATH = ("quickstart", "own_environments", "choose_and_compare", "look_inside", "does_the_listener_listen")


def run_small(name: str, folder: Path) -> Path:
    return execute(FOLDER / f"{name}.ipynb", folder, SMALL[name], progress=False)


def figures(executed: Path) -> int:
    cells = nbformat.read(executed, 4).cells
    return sum("image/png" in output.get("data", {}) for cell in cells for output in cell.get("outputs", []))


@pytest.mark.parametrize("name", PATH)
def test_each_step_shows_the_whole_path_and_says_what_is_next(name: str) -> None:
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", 4)
    first, last = notebook.cells[0].source, notebook.cells[-1].source
    line = next(line for line in first.splitlines() if line.startswith("*The first hour:"))
    steps = [re.sub(r"\W", "", step) for step in line.split(" · ")]
    assert len(steps) == len(PATH) and line.count("**") == 2
    links = re.findall(r"\]\((\w+)\.ipynb\)", line)
    assert links == [step for step in PATH if step != name]  # in order
    following = PATH[PATH.index(name) + 1 :]
    assert f"]({following[0]}.ipynb)" in last if following else "first hour" in last


@pytest.mark.parametrize("path", sorted(FOLDER.glob("**/*.ipynb")), ids=lambda path: path.stem)
def test_links_to_files_lead_somewhere(path: Path) -> None:
    texts = [cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "markdown"]
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", "\n".join(texts)):
        assert (path.parent / link).exists(), f"{path.name} links to {link}"


def test_algorithms_are_compared(tmp_path: Path) -> None:
    executed = run_small("choose_and_compare", tmp_path / "run")
    states = {name: Run.open(tmp_path / "run" / f"{name}-0").status()["state"] for name in ("vdn", "qmix")}
    assert set(states.values()) == {"complete"}
    assert figures(executed) >= 4  # the panel's curve; curves, ends, which is better


def test_agents_are_looked_into(tmp_path: Path) -> None:
    executed = run_small("look_inside", tmp_path / "run")
    with Recording.open(tmp_path / "run" / "recordings" / "early.h5") as recording:
        assert recording.checkpoint[0] == 10
    assert figures(executed) >= 4  # the microscope's still, units of an episode, tuning, the map
