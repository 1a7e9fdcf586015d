"""Displaying a panel sends few messages: ZMQ drops messages beyond 1,000 for a slow reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from comm import DummyComm

from marlnb.experiment import Experiment
from marlnb.training.runs.run import Run
from marlnb.widgets.core.background import wait_for_requests
from marlnb.widgets.forms.algorithm_panel import AlgorithmPanel
from marlnb.widgets.recordings.recording_panel import RecordingPanel
from marlnb.widgets.runs.checkpoints_panel import CheckpointsPanel
from marlnb.widgets.runs.run_panel import RunPanel
from marlnb.widgets.runs.training_panel import TrainingPanel
from tests.widgets.trained import original, run, until  # noqa: F401

MAX_MESSAGES = 300  # of ZMQ's 1,000: a notebook displays more than one panel
Sent = Callable[[str], int]
PARTS = ("env=mpe/simple_tag", "algorithms.agent=iql", "models.adversary_0=gru", "critic=deep_sets")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sent]:
    """Counts the messages of a kind."""
    kinds: list[str] = []
    monkeypatch.setattr(DummyComm, "publish_msg", lambda self, kind, *_, **__: kinds.append(kind))
    yield kinds.count


def test_a_training_panel_sends_few_messages(sent: Sent) -> None:
    panel = TrainingPanel(Experiment.compose("env=mpe/simple_tag", "algorithm=ippo"))
    until(lambda: panel.environment.spec is not None and panel.algorithm.networks)
    assert 50 < sent("comm_open") < 200
    assert sent("comm_msg") < 40  # most state is sent when a widget is made, not afterwards
    opened = sent("comm_open")
    panel.algorithm.choices["all groups"].same_critic.value = False  # a part that was not visible is made now
    assert opened + 4 < sent("comm_open") < opened + 20


def test_a_panel_with_a_run_and_separate_parts_sends_few_more(sent: Sent, run: Run) -> None:  # noqa: F811
    panel = TrainingPanel(Experiment.compose(*PARTS))
    until(lambda: panel.environment.spec is not None and panel.algorithm.networks)
    other = TrainingPanel(run=run.path)
    until(lambda: other.environment.spec is not None and other.algorithm.networks)
    assert sent("comm_open") + sent("comm_msg") < 2 * MAX_MESSAGES
    assert other.run_panel is not None
    other.run_panel.close()


@pytest.mark.parametrize("kind", [AlgorithmPanel, CheckpointsPanel, RecordingPanel, RunPanel])
def test_single_panels_send_few_messages(sent: Sent, run: Run, kind: Any) -> None:  # noqa: F811
    panel = kind(run.experiment) if kind is AlgorithmPanel else kind(run)
    if kind is RecordingPanel:
        until(lambda: panel.plan is not None)
    assert 20 < sent("comm_open") + sent("comm_msg") < MAX_MESSAGES
    if hasattr(panel, "close"):
        panel.close()


def test_setting_a_form_sends_one_message(sent: Sent) -> None:
    panel = TrainingPanel(Experiment.compose("env=mpe/simple_tag", "algorithm=ippo"))
    until(lambda: panel.environment.spec is not None and panel.algorithm.networks)
    wait_for_requests()
    before = sent("comm_msg")
    panel.length.set({"frames": 5, "seed": 6, "rollout_steps": 0})
    assert sent("comm_msg") == before + 1
