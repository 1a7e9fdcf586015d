"""A hub on a cluster of its own, and a person at a browser; see tests/cluster/conftest.py for when these tests run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.hub import environment
from tests.cluster.settings import Settings

if os.environ.get("MARLNB_CLUSTER_TESTS"):
    environment.prepare_browser()
    from playwright.sync_api import sync_playwright

    from tests.browser.lab import ARGUMENTS, CHROMIUM
    from tests.cluster.hub.person import Person
    from tests.cluster.hub.server import Hub, hub_on

    SETTINGS = Settings(state=Path("/run/marlnb-hub"), port=17937, node="hub1", network="10.79.0", kill_wait_s=30)

    @pytest.fixture(scope="module")
    def hub(request: pytest.FixtureRequest) -> Iterator[Hub]:
        environment.prepare()
        with Cluster.up(SETTINGS) as cluster:
            with hub_on(cluster) as hub:
                yield hub
                if request.session.testsfailed:
                    print(hub.story())
        assert cluster.left_over() == ""

    @pytest.fixture(scope="module")
    def person(hub: Hub) -> Iterator[Person]:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
            yield Person(hub, browser.new_page(viewport={"width": 1300, "height": 1000}))
            browser.close()
