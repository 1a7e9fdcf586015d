"""Orders in which units are drawn, as permutations: place -> unit."""

from __future__ import annotations

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage

ORDERS = {
    "raw": "as in the network",
    "peak": "by the step of their peak",
    "variance": "by variance, largest first",
    "cluster": "alike ones together",
}


def unit_orders(x: np.ndarray) -> dict[str, np.ndarray]:
    """Every order of `[time, unit]` activations, int32.

    cluster: leaves of Ward's tree over the units' courses, each standardised over time; constant units count as flat.
    """
    x = np.nan_to_num(np.asarray(x, dtype=np.float64))
    n = x.shape[1]
    found = {
        "raw": np.arange(n),
        "peak": np.argsort(x.argmax(axis=0), kind="stable"),
        "variance": np.argsort(-x.var(axis=0), kind="stable"),
        "cluster": _clustered(x) if n > 2 and len(x) > 1 else np.arange(n),
    }
    return {name: order.astype(np.int32) for name, order in found.items()}


def _clustered(x: np.ndarray) -> np.ndarray:
    spread = x.std(axis=0)
    courses = (x - x.mean(axis=0)) / np.where(spread > 1e-12, spread, 1.0)
    return np.asarray(leaves_list(linkage(courses.T, method="ward")))
