"""How similar sites, agents, seeds and checkpoints are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from marlnb.plots.canvas import axes, finish, heat_map

if TYPE_CHECKING:
    from marlnb.analysis.representations.similarity_result import SimilarityMatrix

METHOD_NAMES = {
    "cka": "linear CKA",
    "unbiased_cka": "linear CKA, unbiased",
    "cca": "mean canonical correlation",
    "svcca": "SVCCA",
    "pwcca": "PWCCA",
    "procrustes": "Procrustes similarity",
}
MAX_WRITTEN_CELLS = 144


def similarity_map(
    matrix: SimilarityMatrix, *, title: str = "How similar are the units?", ax: Axes | None = None
) -> Axes:
    """The matrix with its numbers; in brackets the similarity of randomly paired episodes, to be subtracted.

    A matrix of more than 144 cells has colours alone.
    """
    n_rows, n_columns = matrix.values.shape
    text = None
    if n_rows * n_columns <= MAX_WRITTEN_CELLS:
        text = np.vectorize("{:.2f}\n({:.2f})".format)(matrix.values, matrix.shuffled)
    columns = [name.replace(" ", "\n", 1) for name in matrix.columns]
    label = METHOD_NAMES.get(matrix.method, matrix.method)
    ax = axes(ax, width=3.4 + 0.72 * n_columns, height=2.4 + 0.52 * n_rows)
    heat_map(ax, matrix.values, rows=matrix.rows, columns=columns, label=label, text=text, low=0, high=1, font_size=7.5)
    across = "(in brackets: episodes paired at random)" if text is not None else ""
    return finish(ax, title=title, x=across, y="", grid="", warnings=matrix.warnings)
