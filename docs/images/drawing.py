"""Draws what the pictures of the pages share: boxes with arrows, a terminal's text, and small PNG files."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from PIL import Image

from marlnb.plots.canvas import INK, MUTED

FOLDER = Path(__file__).parent
MAX_BYTES = 60_000
COLOURS = (256, 128, 64, 32, 16)  # sizes of the palette; the first that makes the file small enough is used
BLUE, ORANGE, GREEN, PINK, GREY = "#DCE9F5", "#FCEBCB", "#D5EEE4", "#F3E1EC", "#EEEEEE"
LETTER_IN, LINE_IN = 0.079, 0.185  # width of a letter and height of a line of a box's text, in inches
MONOSPACE_IN = 0.0745


@dataclass(frozen=True)
class Box:
    """A box of a diagram: its centre in inches from the lower left corner, and its text, the first line in bold."""

    x: float
    y: float
    text: str
    colour: str = GREY
    width: float | None = None

    @property
    def size(self) -> tuple[float, float]:
        lines = self.text.split("\n")
        width = max(len(lines[0]) * 1.08, *map(len, lines)) * LETTER_IN + 0.26
        return self.width or width, len(lines) * LINE_IN + 0.2


def diagram(boxes: Mapping[str, Box], arrows: Sequence[tuple[str, ...]], *, width: float, height: float) -> Figure:
    """Boxes and arrows between them.

    Args:
        boxes: by name.
        arrows: (from, to) or (from, to, label).
        width: of the figure, in inches.
        height: of the figure, in inches.
    """
    figure = Figure(figsize=(width, height), dpi=110, facecolor="white")
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set_xlim(0, width)
    ax.set_ylim(0, height)
    ax.set_axis_off()
    for box in boxes.values():
        w, h = box.size
        patch = FancyBboxPatch(
            (box.x - w / 2, box.y - h / 2), w, h, boxstyle="round,pad=0,rounding_size=0.08", fc=box.colour, ec=MUTED
        )
        ax.add_patch(patch)
        lines = box.text.split("\n")
        for k, line in enumerate(lines):
            y = box.y + ((len(lines) - 1) / 2 - k) * LINE_IN
            weight = "bold" if k == 0 else "normal"
            ax.text(box.x, y, line, ha="center", va="center_baseline", fontsize=9.5, weight=weight, color=INK)
    for start, end, *label in arrows:
        tail, head = _ends(boxes[start], boxes[end])
        ax.annotate("", head, tail, arrowprops={"arrowstyle": "-|>", "color": INK, "shrinkA": 0, "shrinkB": 1})
        if label:
            background = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
            middle = ((tail[0] + head[0]) / 2, (tail[1] + head[1]) / 2)
            ax.text(*middle, label[0], ha="center", va="center", fontsize=8.5, color=INK, bbox=background)
    return figure


def _ends(start: Box, end: Box) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where an arrow begins and ends: in the middle of the sides between which there is more space."""
    dx, dy = end.x - start.x, end.y - start.y
    (start_width, start_height), (end_width, end_height) = start.size, end.size
    if abs(dx) - (start_width + end_width) / 2 >= abs(dy) - (start_height + end_height) / 2:
        right = np.sign(dx) / 2
        return (start.x + right * start_width, start.y), (end.x - right * end_width, end.y)
    up = np.sign(dy) / 2
    return (start.x, start.y + up * start_height), (end.x, end.y - up * end_height)


def terminal(text: str) -> Figure:
    """A terminal that shows these lines; those that start with `$ ` are commands."""
    lines = text.rstrip("\n").split("\n")
    width, height = max(map(len, lines)) * MONOSPACE_IN + 0.4, len(lines) * LINE_IN + 0.36
    figure = Figure(figsize=(width, height), dpi=110, facecolor="#20262E")
    for k, line in enumerate(lines):
        y = 1 - (0.18 + (k + 0.5) * LINE_IN) / height
        colour = "#8FD0FF" if line.startswith("$ ") else "#E6E6E6"
        literal = line.replace("$", r"\$")
        figure.text(0.2 / width, y, literal, family="DejaVu Sans Mono", fontsize=8.9, color=colour, va="center")
    return figure


def tiles(pictures: Mapping[str, np.ndarray], *, columns: int, size: float = 1.5) -> Figure:
    """Pictures `[height, width, 3]` with their names above, in rows."""
    rows = -(-len(pictures) // columns)
    figure = Figure(figsize=(columns * size, rows * (size + 0.25)), dpi=110, layout="constrained", facecolor="white")
    for ax in (axes := figure.subplots(rows, columns, squeeze=False)).flat:
        ax.set_axis_off()
    for ax, (name, picture) in zip(axes.flat, pictures.items()):
        ax.imshow(picture)
        ax.set_axis_on()
        ax.set(xticks=[], yticks=[])
        ax.set_title(name, fontsize=9, color=INK)
    return figure


def save(figure: Figure, name: str) -> Path:
    """Writes `<name>.png` in this folder with a palette that keeps it small.

    Raises:
        SystemExit: the file would be too large with every palette.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=110)
    picture = Image.open(buffer).convert("RGB")
    path = FOLDER / f"{name}.png"
    for n_colours in COLOURS:
        picture.quantize(n_colours, dither=Image.Dither.NONE).save(path, optimize=True)
        if path.stat().st_size <= MAX_BYTES:
            return path
    raise SystemExit(f"{path.name} has {path.stat().st_size:,} bytes, more than {MAX_BYTES:,}: make it smaller")
