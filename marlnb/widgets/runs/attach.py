"""`attach`: the live panel of one run, or of several in one chart."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import overload

from marlnb.training.runs.run import Run
from marlnb.widgets.runs.run_panel import RunPanel
from marlnb.widgets.runs.runs_panel import RunsPanel

RunOrPath = str | os.PathLike[str] | Run


@overload
def attach(  # type: ignore[overload-overlap]  # a text is one path, though it is a sequence of texts too
    run: RunOrPath, *, references: Mapping[str, float] | None = None
) -> RunPanel: ...


@overload
def attach(run: Sequence[RunOrPath], *, references: Mapping[str, float] | None = None) -> RunsPanel: ...


def attach(
    run: RunOrPath | Sequence[RunOrPath], *, references: Mapping[str, float] | None = None
) -> RunPanel | RunsPanel:
    """The live panel of a run, wherever it trains or trained; or the curves of several runs in one chart.

    Args:
        run: a run, or several: `["runs/a", "runs/seed-*"]` draws a line for the first, and the average of the runs
            that the pattern matches, with its interval.
        references: named levels drawn as lines, in units of reward per agent and episode.
    Raises:
        RunError: a folder is not a run, a pattern matches none, or something else than runs is given.
    """
    if isinstance(run, (str, os.PathLike, Run)):
        return RunPanel(run if isinstance(run, Run) else Run.open(run), references=references)
    return RunsPanel(run, references=references)
