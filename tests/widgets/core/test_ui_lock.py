"""Clicks, results of threads and pollers change panels at the same time: UI_LOCK serialises them."""

from __future__ import annotations

import threading

import pytest

from marlnb.experiment import Experiment
from marlnb.widgets.core.background import LatestOnly
from marlnb.widgets.core.poller import Poller
from marlnb.widgets.core.ui_lock import UI_LOCK
from marlnb.widgets.forms.env_preview import EnvPreview, preview_env
from marlnb.widgets.runs.training_panel import TrainingPanel
from tests.widgets.trained import until

SMALL = ("env=mpe/simple_tag", "algorithm=ippo", "n_envs=4", "rollout_steps=16", "frames=400", "threads=1")
N_THREADS, N_CLICKS = 4, 8


def test_clicks_while_results_arrive_from_many_threads(
    frequent_switches: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = TrainingPanel(Experiment.compose(*SMALL))
    until(lambda: panel.environment.spec is not None and panel.algorithm.networks)
    raised: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda what: raised.append(what.exc_value))
    config = panel.environment.config
    previews = [preview_env(config), preview_env(Experiment.compose("env=mpe/simple_spread").env)]
    done = threading.Event()

    def deliver(preview: EnvPreview) -> None:
        latest = LatestOnly(wait_s=0)
        while not done.is_set():
            latest.request(lambda: preview, panel.environment._show, lambda error: raised.append(error)).join()

    threads = [threading.Thread(target=deliver, args=(previews[k % 2],)) for k in range(N_THREADS)]
    for thread in threads:
        thread.start()
    try:
        for k in range(N_CLICKS):
            panel.algorithm._add.click()
            panel.algorithm.choices["all groups"].model._name.value = ("mlp", "gru")[k % 2]
            with UI_LOCK:  # a result that arrives in between may leave one tab
                panel.algorithm._tabs.selected_index = 0 if len(panel.algorithm._tabs.children) < 2 else 1
            panel.algorithm._remove.click()
            panel.length.fields["seed"].enter(str(k))
    finally:
        done.set()
        for thread in threads:
            thread.join(60)
    assert raised == []
    assert panel.experiment.seed == N_CLICKS - 1
    boxes = [choice.box for choice in panel.algorithm.choices.values()]
    assert list(panel.algorithm._tabs.children) == boxes


def test_requests_run_without_the_lock_and_deliver_under_it() -> None:
    latest, may_end = LatestOnly(wait_s=0), threading.Event()
    is_running, is_delivered = threading.Event(), threading.Event()

    def run() -> None:
        is_running.set()
        assert may_end.wait(60)

    thread = latest.request(run, lambda _: is_delivered.set(), lambda error: None)
    assert is_running.wait(60)
    with UI_LOCK:  # a click does not wait for the request, and ends before its result arrives
        may_end.set()
        thread.join(0.2)
        assert not is_delivered.is_set()
    thread.join(60)
    assert is_delivered.is_set()


def test_the_result_of_an_older_request_is_dropped() -> None:
    latest, results = LatestOnly(wait_s=0), []
    with UI_LOCK:
        threads = [latest.request(lambda: 1, results.append, lambda error: None)]
        threads[0].join(0.2)  # it has its result and waits for the lock
        threads.append(latest.request(lambda: 2, results.append, lambda error: None))
    for thread in threads:
        thread.join(60)
    assert results == [2]


def test_a_result_that_cannot_be_shown_is_a_failure() -> None:
    errors: list[Exception] = []
    LatestOnly(wait_s=0).request(lambda: "7", lambda result: result.missing, errors.append).join(60)
    assert [type(error) for error in errors] == [AttributeError]


class Files:
    """What a poller queries: a number that grows with each query."""

    def __init__(self) -> None:
        self.n_queries, self.shown = 0, list[int]()
        self.first_query, self.may_continue = threading.Event(), threading.Event()

    def query(self) -> int:
        self.n_queries += 1
        number = self.n_queries
        if number == 1:
            self.first_query.set()
            assert self.may_continue.wait(60)
        return number

    def show(self, number: int) -> float:
        self.shown.append(number)
        return 60.0

    def fail(self, error: Exception) -> None:
        raise error


def test_catching_up_under_the_lock_shows_each_result_once_and_in_order() -> None:
    files = Files()
    poller = Poller(files.query, files.show, files.fail)
    try:
        assert files.first_query.wait(60)
        with UI_LOCK:
            threading.Timer(0.1, files.may_continue.set).start()  # the poller's query ends while this one waits for it
            poller.catch_up()
            assert files.shown == [1, 2]
    finally:
        poller.end()
