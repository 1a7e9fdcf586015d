"""Panels are changed by clicks, by answers that took time and by looks at files, all at once: one at a time, whole."""

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

SMALL = ("env=mpe/simple_tag", "algorithm=ippo", "n_envs=4", "rollout_steps=10", "frames=400", "threads=1")
N_THREADS, N_CLICKS = 4, 8


def test_clicks_while_answers_arrive_from_many_threads(frequent_switches: None, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = TrainingPanel(Experiment.compose(*SMALL))
    until(lambda: panel.environment.spec is not None and panel.algorithm.networks)
    raised: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda what: raised.append(what.exc_value))
    config = panel.environment.config
    looks = [preview_env(config), preview_env(Experiment.compose("env=mpe/simple_spread").env)]
    done = threading.Event()

    def answer(look: EnvPreview) -> None:
        latest = LatestOnly(wait_s=0)
        while not done.is_set():
            latest.request(lambda: look, panel.environment._show, lambda error: raised.append(error)).join()

    threads = [threading.Thread(target=answer, args=(looks[place % 2],)) for place in range(N_THREADS)]
    for thread in threads:
        thread.start()
    try:
        for place in range(N_CLICKS):
            panel.algorithm._add.click()
            panel.algorithm.choices["all groups"].model._name.value = ("mlp", "gru")[place % 2]
            with UI_LOCK:  # an answer that comes in between may leave one tab
                panel.algorithm._tabs.selected_index = 0 if len(panel.algorithm._tabs.children) < 2 else 1
            panel.algorithm._remove.click()
            panel.length.fields["seed"].enter(str(place))
    finally:
        done.set()
        for thread in threads:
            thread.join(60)
    assert raised == []
    assert panel.experiment.seed == N_CLICKS - 1
    boxes = [choice.box for choice in panel.algorithm.choices.values()]
    assert list(panel.algorithm._tabs.children) == boxes


def test_work_is_done_out_of_turn_and_answered_in_turn() -> None:
    latest, may_end = LatestOnly(wait_s=0), threading.Event()
    working, answered = threading.Event(), threading.Event()

    def work() -> None:
        working.set()
        assert may_end.wait(60)

    thread = latest.request(work, lambda _: answered.set(), lambda error: None)
    assert working.wait(60)
    with UI_LOCK:  # a click is not held up by what takes long, and is whole before the answer comes
        may_end.set()
        thread.join(0.2)
        assert not answered.is_set()
    thread.join(60)
    assert answered.is_set()


def test_an_answer_that_was_asked_for_anew_in_the_meantime_is_dropped() -> None:
    latest, answers = LatestOnly(wait_s=0), []
    with UI_LOCK:
        threads = [latest.request(lambda: 1, answers.append, lambda error: None)]
        threads[0].join(0.2)  # its work is done, and it waits for the turn
        threads.append(latest.request(lambda: 2, answers.append, lambda error: None))
    for thread in threads:
        thread.join(60)
    assert answers == [2]


class Files:
    """What a poller looks at: a number that grows with each look."""

    def __init__(self) -> None:
        self.looks, self.shown = 0, list[int]()
        self.first_look, self.may_go_on = threading.Event(), threading.Event()

    def look(self) -> int:
        self.looks += 1
        found = self.looks
        if found == 1:
            self.first_look.set()
            assert self.may_go_on.wait(60)
        return found

    def show(self, found: int) -> float:
        self.shown.append(found)
        return 60.0

    def trouble(self, error: Exception) -> None:
        raise error


def test_who_has_the_turn_may_catch_up_and_nothing_is_shown_twice_or_in_another_order() -> None:
    files = Files()
    poller = Poller(files.look, files.show, files.trouble)
    try:
        assert files.first_look.wait(60)
        with UI_LOCK:
            threading.Timer(0.1, files.may_go_on.set).start()  # the poller's own look ends while this one waits for it
            poller.catch_up()
            assert files.shown == [1, 2]
    finally:
        poller.end()
