"""The microscope under clicks, steps and results of threads at the same time: changes are serialised."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import marlnb as mnb
from marlnb.widgets.core.ui_lock import UI_LOCK
from marlnb.widgets.microscope.scope import Scope
from tests.widgets.trained import until

N_ROUNDS = 4


def test_clicks_steps_and_answers_at_once(
    frequent_switches: None, listener: mnb.Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("loading", "attribution"):
        monkeypatch.setattr(f"marlnb.widgets.microscope.{module}.START_DELAY_S", 0.0)
    monkeypatch.setattr("marlnb.widgets.microscope.loading.SEND_EVERY_S", 0.0)  # every frame alone
    raised: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda what: raised.append(what.exc_value))
    scope = mnb.microscope(listener)
    controls, unlocked = scope.controls, []
    notify = Scope.notify_change

    def noted(self: Scope, change: Any) -> None:
        if not UI_LOCK._is_owned():  # type: ignore[attr-defined]
            unlocked.append(change["name"])
        notify(self, change)

    monkeypatch.setattr(Scope, "notify_change", noted)

    def steps() -> None:
        for t in range(25 * N_ROUNDS):
            scope.scope.set_state({"t": t % 25})  # as a page does

    def episodes() -> None:
        for number in range(N_ROUNDS):
            controls.episode.value = number
            controls.to.index = number % 2

    def comparisons() -> None:
        for number in range(N_ROUNDS):
            scope.compare(episode=11 - number)
            scope.alone()

    def units() -> None:
        for number in range(N_ROUNDS):
            scope.pick("listener_0", number)
            mark = scope.bookmark(f"mark {number}")
            scope.remove_bookmark(mark)

    threads = [threading.Thread(target=run) for run in (steps, episodes, comparisons, units)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    scope.compare(episode=11)
    assert scope.wait(120) and raised == [] and scope.bookmarks == [] and unlocked == []
    state = scope.scope.get_state()
    assert [side["episode"] for side in state["sides"]] == [scope.view.episode, 11]
    assert state["notes"] == ["", ""]
    for film, attribution in zip(state["films"], state["attributions"]):
        assert len(film["images"]) == 25 and set(attribution["agents"]) == {"speaker_0", "listener_0"}


def test_results_about_another_episode_are_not_shown(listener: mnb.Recording) -> None:
    scope = mnb.microscope(listener)
    compare = scope.controls.compare
    compare.checkpoint.value = 10
    compare.play.click()
    scope.go(5)
    until(lambda: "opening" not in compare.status.value)
    assert [side.view.episode for side in scope.sides] == [5] and "meanwhile" in compare.status.value
    assert scope.wait(120)
