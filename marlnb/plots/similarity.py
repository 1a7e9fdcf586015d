"""How alike sites, agents, seeds and checkpoints are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from matplotlib.axes import Axes

from marlnb.plots.canvas import INK, SEQUENTIAL, alarm, axes, finish

METHOD_NAMES = {
    "cka": "linear CKA",
    "unbiased_cka": "linear CKA, unbiased",
    "cca": "mean canonical correlation",
    "svcca": "SVCCA",
    "pwcca": "PWCCA",
    "procrustes": "Procrustes similarity",
}


class SimilarityMatrixResult(Protocol):
    """values `[row, column]` in 0 to 1 by names of rows and columns; `shuffled` is what chance pairings give."""

    @property
    def method(self) -> str: ...
    @property
    def rows(self) -> tuple[str, ...]: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def values(self) -> np.ndarray: ...
    @property
    def p_value(self) -> np.ndarray: ...
    @property
    def shuffled(self) -> np.ndarray: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...


def similarity_map(
    matrix: SimilarityMatrixResult, *, title: str = "How alike are the units?", ax: Axes | None = None
) -> Axes:
    """The matrix with its numbers; in brackets what pairing other episodes gives, so that a reader can subtract it."""
    n_rows, n_columns = matrix.values.shape
    ax = axes(ax, width=3.4 + 0.72 * n_columns, height=2.4 + 0.52 * n_rows)
    image = ax.imshow(matrix.values, cmap=SEQUENTIAL, vmin=0, vmax=1, aspect="auto")
    bar = ax.figure.colorbar(image, ax=ax, pad=0.02)
    bar.set_label(METHOD_NAMES.get(matrix.method, matrix.method), color=INK)
    bar.outline.set_visible(False)  # type: ignore[operator]
    if n_rows * n_columns <= 144:
        for i in range(n_rows):
            for j in range(n_columns):
                value, chance = matrix.values[i, j], matrix.shuffled[i, j]
                colour = "white" if value < 0.55 else INK
                ax.text(j, i, f"{value:.2f}\n({chance:.2f})", ha="center", va="center", fontsize=7.5, color=colour)
    ax.set_xticks(range(n_columns), _wrapped(matrix.columns), rotation=40, ha="right", fontsize=8)
    ax.set_yticks(range(n_rows), list(matrix.rows), fontsize=8)
    finish(ax, title=title, x="(in brackets: episodes paired at random)", y="", grid="")
    alarm(ax, matrix.warnings)
    return ax


def _wrapped(names: Sequence[str]) -> list[str]:
    return [name.replace(" ", "\n", 1) for name in names]
