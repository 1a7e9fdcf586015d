"""Panels are changed by clicks, by answers that took time and by looks at files, all at once: one at a time, whole."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from marlnb.config import Experiment
from marlnb.widgets.looks import Look, look_at
from marlnb.widgets.training_panel import TrainingPanel
from marlnb.widgets.worker import Newest
from tests.widgets.trained import until

SMALL = ("env=mpe/simple_tag", "algorithm=ippo", "n_envs=4", "rollout_steps=10", "frames=400", "threads=1")
N_THREADS, N_CLICKS = 4, 8


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads are switched as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_clicks_while_answers_arrive_from_many_threads(hasty: None, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = TrainingPanel(Experiment.compose(*SMALL))
    until(lambda: panel.environment.spec is not None and panel.algorithm.networks)
    raised: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda what: raised.append(what.exc_value))
    config = panel.environment.config
    looks = [look_at(config), look_at(Experiment.compose("env=mpe/simple_spread").env)]
    done = threading.Event()

    def answer(look: Look) -> None:
        newest = Newest(wait_s=0)
        while not done.is_set():
            newest.ask(lambda: look, panel.environment._show, lambda error: raised.append(error)).join()

    threads = [threading.Thread(target=answer, args=(looks[place % 2],)) for place in range(N_THREADS)]
    for thread in threads:
        thread.start()
    try:
        for place in range(N_CLICKS):
            panel.algorithm._add.click()
            panel.algorithm.choices["all groups"].model._name.value = ("mlp", "gru")[place % 2]
            panel.algorithm._tabs.selected_index = 0 if len(panel.algorithm._tabs.children) < 2 else 1
            panel.algorithm._remove.click()
            panel.length.fields["seed"].control.value = str(place)
    finally:
        done.set()
        for thread in threads:
            thread.join(60)
    assert raised == []
    assert panel.experiment.seed == N_CLICKS - 1
    boxes = [choice.box for choice in panel.algorithm.choices.values()]
    assert list(panel.algorithm._tabs.children) == boxes
