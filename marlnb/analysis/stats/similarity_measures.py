"""How alike two sets of units are, from sums over rows alone: recordings of any length are read once, in batches.

X `[row, p]` and Y `[row, q]` are the units of two views at the same moments, each centred. All measures are between 0
and 1 and do not change when the units of one side are rotated together (but for PWCCA, whose weights are of X's single
units) or all scaled by one number; those of the CCA family do not change under any invertible linear map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Literal, get_args

import numpy as np

Method = Literal["cka", "unbiased_cka", "cca", "svcca", "pwcca", "procrustes"]
METHODS: tuple[str, ...] = get_args(Method)
KEPT_VARIANCE = 0.99
"""SVCCA's share of variance (Raghu et al. 2017, section 2)."""
RANK_TOLERANCE = 1e-7
"""Directions with less of the largest one's variance are rounding: activations are float32."""


@dataclass(frozen=True)
class Sums:
    """Sums over the rows of each block, or of one draw of blocks; every array has a leading axis `[block]`.

    Attributes:
        n: rows; x, y: `[p]`, `[q]`; xx, yy, xy: products `[p, p]`, `[q, q]`, `[p, q]`.
        x2, y2, x4, y4, x2y2: sums of |x|², |y|², |x|⁴, |y|⁴ and |x|²|y|²; xx2, yy2, xy2, yx2: `[p]` and `[q]`, sums of
            x|x|², y|y|², x|y|² and y|x|².
    """

    n: np.ndarray
    x: np.ndarray
    y: np.ndarray
    xx: np.ndarray
    yy: np.ndarray
    xy: np.ndarray
    x2: np.ndarray
    y2: np.ndarray
    x4: np.ndarray
    y4: np.ndarray
    x2y2: np.ndarray
    xx2: np.ndarray
    yy2: np.ndarray
    xy2: np.ndarray
    yx2: np.ndarray

    def drawn(self, weights: np.ndarray) -> Sums:
        """The sums of one draw: each block as often as `weights` `[block]` says."""
        return Sums(*(np.tensordot(weights, getattr(self, field.name), axes=1) for field in fields(self)))


def block_sums(batches: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]], p: int, q: int, n_blocks: int) -> Sums:
    """Sums of (x `[row, p]`, y `[row, q]`, block `[row]`), batch by batch, in float64."""
    shapes = [(), (p,), (q,), (p, p), (q, q), (p, q), *[()] * 5, (p,), (q,), (p,), (q,)]
    sums = Sums(*(np.zeros((n_blocks, *shape)) for shape in shapes))
    for x32, y32, blocks in batches:
        x_all, y_all = x32.astype(np.float64), y32.astype(np.float64)
        for block in np.unique(blocks):
            x, y = x_all[blocks == block], y_all[blocks == block]
            x2, y2 = (x * x).sum(1), (y * y).sum(1)
            parts = (len(x), x.sum(0), y.sum(0), x.T @ x, y.T @ y, x.T @ y, x2.sum(), y2.sum(), x2 @ x2, y2 @ y2)
            for field, part in zip(fields(sums), (*parts, x2 @ y2, x2 @ x, y2 @ y, y2 @ x, x2 @ y)):
                getattr(sums, field.name)[block] += part
    return sums


def measure(method: Method) -> Callable[[Sums], float]:
    """The function of summed rows that a method is."""
    return {
        "cka": cka,
        "unbiased_cka": unbiased_cka,
        "cca": cca,
        "svcca": svcca,
        "pwcca": pwcca,
        "procrustes": procrustes,
    }[method]


def cka(sums: Sums) -> float:
    """Linear centred kernel alignment, |Y'X|² / (|X'X| |Y'Y|) in Frobenius norms.

    Source: Kornblith et al. 2019, Similarity of Neural Network Representations Revisited, section 3 (arXiv:1905.00414).
    """
    xx, yy, xy = _covariances(sums)
    return _ratio(float((xy**2).sum()), float(np.sqrt((xx**2).sum() * (yy**2).sum())))


def unbiased_cka(sums: Sums) -> float:
    """Linear CKA with the unbiased estimator of HSIC: about 0 for unrelated units, however few the rows.

    Source: Nguyen et al. 2020, section 2 (arXiv:2010.15327), with HSIC_1 of Song et al. 2012, equation 5.
    """
    own = _hsic(sums.n, sums.xx, sums.x, sums.x, sums.x2, sums.x2, sums.x4, sums.xx2, sums.xx2)
    other = _hsic(sums.n, sums.yy, sums.y, sums.y, sums.y2, sums.y2, sums.y4, sums.yy2, sums.yy2)
    both = _hsic(sums.n, sums.xy, sums.x, sums.y, sums.x2, sums.y2, sums.x2y2, sums.xy2, sums.yx2)
    return _ratio(both, float(np.sqrt(max(own, 0.0) * max(other, 0.0))))


def cca(sums: Sums) -> float:
    """The mean of the canonical correlations."""
    return float(np.mean(canonical_correlations(sums)))


def svcca(sums: Sums) -> float:
    """The mean canonical correlation of the principal components that hold 99% of each side's variance.

    Source: Raghu et al. 2017, SVCCA, section 2 (arXiv:1706.05806).
    """
    return float(np.mean(canonical_correlations(sums, kept=KEPT_VARIANCE)))


def pwcca(sums: Sums) -> float:
    """Canonical correlations weighted by how much of X's units their directions account for (not symmetric).

    Source: Morcos et al. 2018, Insights on representational similarity in neural networks with CCA, section 3
        (arXiv:1806.05759).
    """
    xx, yy, xy = _covariances(sums)
    white_x, white_y = _whitening(xx, 1.0), _whitening(yy, 1.0)
    if not white_x.size or not white_y.size:
        return 0.0
    left, found, _ = np.linalg.svd(white_x.T @ xy @ white_y, full_matrices=False)
    weights = np.abs(xx @ white_x @ left).sum(0)
    return float(weights @ np.clip(found, 0, 1) / weights.sum())


def procrustes(sums: Sums) -> float:
    """How well a rotation carries one side onto the other, both scaled to norm 1: |Y'X|_nuclear / (|X| |Y|).

    1 - this is half the squared Procrustes distance.

    Source: Ding et al. 2021, Grounding Representation Similarity with Statistical Testing, section 2
        (arXiv:2108.01661).
    """
    xx, yy, xy = _covariances(sums)
    return _ratio(float(np.linalg.norm(xy, "nuc")), float(np.sqrt(np.trace(xx) * np.trace(yy))))


def canonical_correlations(sums: Sums, kept: float = 1.0) -> np.ndarray:
    """`[min(rank of X, rank of Y)]`, descending, after keeping a share `kept` of each side's variance; [0] if none."""
    xx, yy, xy = _covariances(sums)
    white_x, white_y = _whitening(xx, kept), _whitening(yy, kept)
    if not white_x.size or not white_y.size:
        return np.zeros(1)
    return np.clip(np.linalg.svd(white_x.T @ xy @ white_y, compute_uv=False), 0.0, 1.0)


def _covariances(sums: Sums) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums of products of centred units."""
    n = sums.n
    return (
        sums.xx - np.outer(sums.x, sums.x) / n,
        sums.yy - np.outer(sums.y, sums.y) / n,
        sums.xy - np.outer(sums.x, sums.y) / n,
    )


def _whitening(covariance: np.ndarray, kept: float) -> np.ndarray:
    """`[unit, component]`: maps units onto uncorrelated components of variance 1."""
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[::-1], vectors[:, ::-1]
    if values[0] <= 0:
        return vectors[:, :0]
    rank = int((values > RANK_TOLERANCE * values[0]).sum())
    share = np.cumsum(values[:rank]) / values[:rank].sum()
    rank = min(rank, int(np.searchsorted(share, kept * (1 - 1e-12)) + 1))
    return np.asarray(vectors[:, :rank] / np.sqrt(values[:rank]))


def _hsic(
    n: np.ndarray,
    ab: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    a2: np.ndarray,
    b2: np.ndarray,
    a2b2: np.ndarray,
    ab2: np.ndarray,
    ba2: np.ndarray,
) -> float:
    """HSIC_1 of the kernels K = AA', L = BB' without their diagonals, from sums: row i of K sums to a_i·a - |a_i|²."""
    trace = (ab**2).sum() - a2b2
    total_k, total_l = a @ a - a2, b @ b - b2
    products = a @ ab @ b - a @ ab2 - b @ ba2 + a2b2
    return float((trace + total_k * total_l / ((n - 1) * (n - 2)) - 2 / (n - 2) * products) / (n * (n - 3)))


def _ratio(top: float, bottom: float) -> float:
    return top / bottom if bottom > 0 else 0.0
