"""What is shown of a widget where widgets do not run: a still picture and its numbers as text."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as w
from matplotlib.figure import Figure

from marlnb.plots.learning import learning_curve
from marlnb.training.run import Run

VIEW = "application/vnd.jupyter.widget-view+json"


def with_picture(widget: w.Widget, text: str, figure: Callable[[], Figure | None]) -> dict[str, Any]:
    """A mime bundle: the widget, and for pages without widgets a picture and text."""
    bundle: dict[str, Any] = {
        VIEW: {"version_major": 2, "version_minor": 0, "model_id": widget.model_id},
        "text/plain": text,
    }
    drawn = figure()
    if drawn is not None:
        bundle["image/png"] = png(drawn)
    return bundle


def png(figure: Figure) -> str:
    """A figure as base64."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90)
    return base64.b64encode(buffer.getvalue()).decode()


def figure_of_run(run: Run, references: Mapping[str, float] | None = None) -> Figure | None:
    """The learning curve of a run so far, one line a group; None before the first episode ended."""
    table = run.metrics()
    columns = [name for name in table.columns if name.startswith("returns/")]
    if not columns or table[columns].dropna(how="all").empty:
        return None
    curves = {name.partition("/")[2]: table[name].to_numpy(dtype=float) for name in columns}
    axes = learning_curve(
        table["frames"], curves, references=references, smooth=5, title=f"{run.experiment.env.name}: returns"
    )
    return axes.get_figure(root=True)
