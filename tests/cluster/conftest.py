"""A cluster for the tests of this folder, which `make cluster-test` runs, and `make test` never does."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster

if not os.environ.get("MARLNB_CLUSTER_TESTS"):
    collect_ignore_glob = ["*"]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Without accounting; the node warns those that it preempts."""
    with Cluster.up() as cluster:
        yield cluster
    assert cluster.left_over() == ""
