"""Similarity of two sets of units, computed from sums over rows, so that long recordings are read once, in batches.

X `[row, p]` and Y `[row, q]` are the units of two views at the same time steps, each centred. All measures are between
0 and 1. They are invariant to a rotation of one side's units (except PWCCA, which weights X's single units) and to
scaling all of them by one number; those of the CCA family are invariant to any invertible linear map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

import numpy as np

SimilarityMethod = Literal["cka", "unbiased_cka", "cca", "svcca", "pwcca", "procrustes"]
METHODS: tuple[str, ...] = get_args(SimilarityMethod)
SVCCA_VARIANCE = 0.99
"""Share of the variance that SVCCA keeps (Raghu et al. 2017, section 2)."""
RANK_TOLERANCE = 1e-7
"""Directions with a smaller share of the largest variance are rounding errors: activations are float32."""


@dataclass(frozen=True)
class SimilaritySums:
    """Sums over the rows of each block, or of one draw of blocks; every array has a leading axis `[block]`.

    Attributes:
        n: rows.
        x: `[p]`.
        y: `[q]`.
        xx: `[p, p]`, products.
        yy: `[q, q]`.
        xy: `[p, q]`.
        x2: sum of |x|^2.
        y2: sum of |y|^2.
        x4: sum of |x|^4.
        y4: sum of |y|^4.
        x2y2: sum of |x|^2 |y|^2.
        xx2: `[p]`, sum of x |x|^2.
        yy2: `[q]`, sum of y |y|^2.
        xy2: `[p]`, sum of x |y|^2.
        yx2: `[q]`, sum of y |x|^2.
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

    def weighted(self, weights: np.ndarray) -> SimilaritySums:
        """The sums with each block counted `weights` `[block]` times."""
        return SimilaritySums(*(np.tensordot(weights, getattr(self, field.name), axes=1) for field in fields(self)))


def block_sums(
    batches: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]], p: int, q: int, n_blocks: int
) -> SimilaritySums:
    """Sums of (x `[row, p]`, y `[row, q]`, block `[row]`), batch by batch, in float64."""
    shapes = [(), (p,), (q,), (p, p), (q, q), (p, q), *[()] * 5, (p,), (q,), (p,), (q,)]
    sums = SimilaritySums(*(np.zeros((n_blocks, *shape)) for shape in shapes))
    for x32, y32, blocks in batches:
        x_all, y_all = x32.astype(np.float64), y32.astype(np.float64)
        for block in np.unique(blocks):
            x, y = x_all[blocks == block], y_all[blocks == block]
            x2, y2 = (x * x).sum(1), (y * y).sum(1)
            parts = (len(x), x.sum(0), y.sum(0), x.T @ x, y.T @ y, x.T @ y, x2.sum(), y2.sum(), x2 @ x2, y2 @ y2)
            for field, part in zip(fields(sums), (*parts, x2 @ y2, x2 @ x, y2 @ y, y2 @ x, x2 @ y)):
                getattr(sums, field.name)[block] += part
    return sums


def similarity_function(method: SimilarityMethod) -> Callable[[SimilaritySums], float]:
    """The function of the sums that computes a method."""
    return {measure.__name__: measure for measure in (cka, unbiased_cka, cca, svcca, pwcca, procrustes)}[method]


def cka(sums: SimilaritySums) -> float:
    """Linear centred kernel alignment, in Frobenius norms:

        CKA(X, Y) = |Y'X|^2 / (|X'X| |Y'Y|)

    Source: Kornblith et al. 2019, Similarity of Neural Network Representations Revisited, section 3 (arXiv:1905.00414).
    """
    xx, yy, xy = _covariances(sums)
    return _ratio(float((xy**2).sum()), float(np.sqrt((xx**2).sum() * (yy**2).sum())))


def unbiased_cka(sums: SimilaritySums) -> float:
    """Linear CKA with the unbiased estimator of HSIC, which is about 0 for unrelated units, however few the rows.

        CKA = HSIC_1(XX', YY') / sqrt(HSIC_1(XX', XX') HSIC_1(YY', YY'))

    Source: Nguyen et al. 2020, section 2 (arXiv:2010.15327), with HSIC_1 of Song et al. 2012, equation 5.
    """
    s = sums
    hsic_xx = _hsic(replace(s, xy=s.xx, y=s.x, y2=s.x2, x2y2=s.x4, xy2=s.xx2, yx2=s.xx2))
    hsic_yy = _hsic(replace(s, xy=s.yy, x=s.y, x2=s.y2, x2y2=s.y4, xy2=s.yy2, yx2=s.yy2))
    return _ratio(_hsic(s), float(np.sqrt(max(hsic_xx, 0.0) * max(hsic_yy, 0.0))))


def cca(sums: SimilaritySums) -> float:
    """The mean canonical correlation.

        rho_i = singular values of (X'X)^-1/2 X'Y (Y'Y)^-1/2,    CCA = mean_i rho_i

    Source: Hotelling 1936, Relations Between Two Sets of Variates.
    """
    return float(np.mean(canonical_correlations(sums)))


def svcca(sums: SimilaritySums) -> float:
    """The mean canonical correlation of the leading principal components, with 99% of each side's variance.

    Source: Raghu et al. 2017, SVCCA, section 2 (arXiv:1706.05806).
    """
    return float(np.mean(canonical_correlations(sums, variance_share=SVCCA_VARIANCE)))


def pwcca(sums: SimilaritySums) -> float:
    """Canonical correlations weighted by how much of X's units their directions h_i account for (not symmetric).

        PWCCA = sum_i a_i rho_i / sum_i a_i,    a_i = sum_j |<h_i, x_j>|

    Source: Morcos et al. 2018, Insights on representational similarity in neural networks with CCA, section 3
        (arXiv:1806.05759).
    """
    xx, yy, xy = _covariances(sums)
    white_x, white_y = _whitening(xx), _whitening(yy)
    if not white_x.size or not white_y.size:
        return 0.0
    left, correlations, _ = np.linalg.svd(white_x.T @ xy @ white_y, full_matrices=False)
    weights = np.abs(xx @ white_x @ left).sum(0)
    return float(weights @ np.clip(correlations, 0, 1) / weights.sum())


def procrustes(sums: SimilaritySums) -> float:
    """How well a rotation maps one side onto the other, both scaled to norm 1:

        1 - d^2 / 2 = |Y'X|_nuclear / (|X| |Y|),    d = min_R |X / |X| - Y R / |Y|| the Procrustes distance

    Source: Ding et al. 2021, Grounding Representation Similarity with Statistical Testing, section 2
        (arXiv:2108.01661).
    """
    xx, yy, xy = _covariances(sums)
    return _ratio(float(np.linalg.norm(xy, "nuc")), float(np.sqrt(np.trace(xx) * np.trace(yy))))


def canonical_correlations(sums: SimilaritySums, variance_share: float = 1.0) -> np.ndarray:
    """`[min(rank of X, rank of Y)]`, descending, of the share `variance_share` of each side's variance; [0] if none."""
    xx, yy, xy = _covariances(sums)
    white_x, white_y = _whitening(xx, variance_share), _whitening(yy, variance_share)
    if not white_x.size or not white_y.size:
        return np.zeros(1)
    return np.clip(np.linalg.svd(white_x.T @ xy @ white_y, compute_uv=False), 0.0, 1.0)


def _covariances(sums: SimilaritySums) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums of products of centred units."""
    n, x, y = sums.n, sums.x, sums.y
    return sums.xx - np.outer(x, x) / n, sums.yy - np.outer(y, y) / n, sums.xy - np.outer(x, y) / n


def _whitening(covariance: np.ndarray, variance_share: float = 1.0) -> np.ndarray:
    """`[unit, component]`: maps units onto uncorrelated components of variance 1."""
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[::-1], vectors[:, ::-1]
    if values[0] <= 0:
        return vectors[:, :0]
    rank = int((values > RANK_TOLERANCE * values[0]).sum())
    share = np.cumsum(values[:rank]) / values[:rank].sum()
    rank = min(rank, int(np.searchsorted(share, variance_share * (1 - 1e-12)) + 1))
    return np.asarray(vectors[:, :rank] / np.sqrt(values[:rank]))


def _hsic(sums: SimilaritySums) -> float:
    """The unbiased HSIC of the kernels K = XX', L = YY' with zero diagonals, from sums (Song et al. 2012, equation 5).

        HSIC_1 = (tr(K L) + 1'K1 1'L1 / ((n - 1)(n - 2)) - 2 / (n - 2) 1'K L1) / (n (n - 3))

    Row i of K sums to x_i'x - |x_i|^2 with x = sum_i x_i, so every term is a product of sums.
    """
    n, x, y = sums.n, sums.x, sums.y
    trace = (sums.xy**2).sum() - sums.x2y2
    total_k, total_l = x @ x - sums.x2, y @ y - sums.y2
    products = x @ sums.xy @ y - x @ sums.xy2 - y @ sums.yx2 + sums.x2y2
    return float((trace + total_k * total_l / ((n - 1) * (n - 2)) - 2 / (n - 2) * products) / (n * (n - 3)))


def _ratio(top: float, bottom: float) -> float:
    return top / bottom if bottom > 0 else 0.0
