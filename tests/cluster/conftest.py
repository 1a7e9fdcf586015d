"""A cluster for the tests of this folder, which `make cluster-test` runs, and `make test` never does."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture
def work(cluster: Cluster, request: pytest.FixtureRequest) -> Path:
    """An empty folder of the test on the cluster's disk."""
    folder = cluster.settings.folder("work") / re.sub(r"\W+", "_", request.node.name)
    folder.mkdir()
    return folder
