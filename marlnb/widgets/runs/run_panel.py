"""RunPanel: a run as it trains, with buttons; for a training in this kernel, another process or another node alike.

All that it shows comes from the run's folder, and each button leaves a request there. So closing the browser changes
nothing, and `attach` shows the same panel from another notebook.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ipywidgets as w
from matplotlib.figure import Figure

from marlnb.errors import MarlnbError
from marlnb.training.background import Training, start
from marlnb.training.control import ask
from marlnb.training.runs.follow import News, RunFollower
from marlnb.training.runs.run import Run
from marlnb.widgets.core.controls import Accordion, Tab
from marlnb.widgets.core.curves import LiveCurves
from marlnb.widgets.core.poller import Poller
from marlnb.widgets.core.snapshot import Still, figure_of_run, with_picture
from marlnb.widgets.core.style import log_html, note_html, problem_html, styled
from marlnb.widgets.core.ui_lock import in_turn
from marlnb.widgets.runs.run_buttons import RunButtons
from marlnb.widgets.runs.run_lines import lines_of
from marlnb.widgets.runs.run_numbers import RunNumbers
from marlnb.widgets.runs.run_status import ALIVE, describe_failure, describe_status

if TYPE_CHECKING:
    from marlnb.models.policies.policy import Policy
    from marlnb.widgets.recordings.recording_panel import RecordingPanel
    from marlnb.widgets.runs.checkpoints_panel import CheckpointsPanel

LIVE_S, IDLE_S = 0.5, 2.0  # between two looks, at least
LOG_LINES = 200
BAR_STEPS = 500  # a bar that moves by less than that is not sent


class RunPanel:
    """Curves, progress, losses on demand, a log, and buttons of one run.

    Attributes:
        run: what is shown.
        widget: what a notebook displays.
        training: the training that this panel began in this process, None where it began none.
        stills: pictures that are drawn anew as the run goes on, for pages without widgets.
        checkpoints, recording: the panels of the tabs with these names; None until the tab was opened.
    """

    def __init__(self, run: Run, *, references: Mapping[str, float] | None = None) -> None:
        self.run = run
        self.training: Training | None = None
        self.checkpoints: CheckpointsPanel | None = None
        self.recording: RecordingPanel | None = None
        self._follower = RunFollower(run)
        self._events: list[str] = []
        self._status = run.status()
        self._stop_at: float | None = None
        self._agents: list[str] = []
        self._settled = True
        self._make(dict(references or {}))
        self._show_status()
        self.stills = [Still(self.widget, lambda: repr(self), self.figure)]
        self._poller = self._follow()

    def _make(self, references: dict[str, float]) -> None:
        self.returns = LiveCurves(title=f"{self.run.experiment.env.name}: returns", references=references)
        self.numbers = RunNumbers(self.run)
        self._bar = w.FloatProgress(min=0.0, max=1.0, description="progress", layout=w.Layout(width="22em"))
        self._line, self._error, self._log = w.HTML(), w.HTML(), w.HTML()
        self._controls = RunButtons(self.run, self._line, self._error, start=self._start)
        self.buttons = self._controls.buttons
        for button in self.buttons.values():
            button.on_click(lambda _: self._poller.now())
        titles = ["losses and other numbers", "log"]
        details = Accordion([self.numbers.box, self._log], titles=titles, selected_index=None)
        controls = w.HBox([*self.buttons.values(), self._bar], layout=w.Layout(flex_flow="row wrap"))
        self._pages = {"Numbers and log": details, "Checkpoints": w.VBox(), "Recordings": w.VBox()}
        self.tabs = Tab(list(self._pages.values()), titles=list(self._pages), selected_index=0)
        self.tabs.observe(self._open_page, "selected_index")
        self.widget: w.VBox = styled(controls, self._line, self._error, self.returns, self.tabs, name="marlnb-run")

    @property
    def policies(self) -> dict[str, Policy] | None:
        """By group, of the checkpoint that was loaded last in the tab; None before."""
        return None if self.checkpoints is None else self.checkpoints.policies

    def close(self) -> None:
        """Looks no more; a training goes on."""
        self._poller.end()
        if self.checkpoints is not None:
            self.checkpoints.close()

    def catch_up(self) -> None:
        """Shows all that stands in the files now."""
        self._poller.catch_up()

    @in_turn
    def start(self, *, stop_after_s: float | None = None) -> Training:
        """Trains in a thread of this process, or goes on; an alive training of this panel is returned as it is.

        Args:
            stop_after_s: seconds after which it is asked to stop, saved; None: never.
        Raises:
            RunError: somebody else trains it. As `marlnb.start`.
        """
        if self.training is None or not self.training.is_alive:
            self._stop_at = None if stop_after_s is None else time.monotonic() + stop_after_s
            self.training = start(self.run.experiment, self.run.path, resume=True)
            self._poller = self._poller if self._poller.is_alive else self._follow()
            self._poller.now()
        return self.training

    def figure(self) -> Figure | None:
        """The learning curve so far; None before the first episode ended."""
        return figure_of_run(self.run, self.returns.references)

    def _ipython_display_(self, **options: Any) -> None:
        self.stills[0].display()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        return with_picture(self.widget, repr(self), self.figure)

    def __repr__(self) -> str:
        return f"RunPanel({self.run!r})"

    def _follow(self) -> Poller[News]:
        return Poller(self._look, self._show, self._trouble)

    def _start(self) -> None:
        try:
            self.start()
        except MarlnbError as error:
            self._error.value = problem_html(str(error))
        else:
            self._error.value = ""
            self._line.value = note_html("beginning")

    def _open_page(self, change: Any) -> None:
        """Makes what a tab shows when it is opened for the first time."""
        if change["new"] == 1 and self.checkpoints is None:
            from marlnb.widgets.runs.checkpoints_panel import CheckpointsPanel

            self.checkpoints = CheckpointsPanel(self.run, curves=self.returns)
            self._pages["Checkpoints"].children = (self.checkpoints.widget,)
        elif change["new"] == 2 and self.recording is None:
            from marlnb.widgets.recordings.recording_panel import RecordingPanel

            self.recording = RecordingPanel(self.run)
            self._pages["Recordings"].children = (self.recording.widget,)
        elif change["new"] == 2 and self.recording is not None:
            self.recording.refresh()  # checkpoints may have come since

    def _look(self) -> News:
        return self._follower.look()

    def _show(self, news: News) -> float:
        """Shows what is new in the run's files; how long until the next look."""
        was_running, self._status = self._status["state"] == "running", news.status
        if news.again:
            self.returns.clear()
        self._hide_agents(news)
        self.returns.add(lines_of(news.rows))
        self.numbers.add(news.rows, anew=news.again)
        self._settled = self._settled and not (news.rows or news.again)
        self._show_status()
        if news.events:
            self._events = [*self._events, *news.events][-LOG_LINES:]
            self._log.value = log_html("\n".join(self._events))
        is_running = self._status["state"] == "running"
        for still in self.stills:
            still.renew_soon(now=was_running and not is_running)
        if self._is_alive:
            self._mind_the_time()
            return LIVE_S
        if not self._settled:
            self.returns.settle()
            self._settled = True
        return IDLE_S

    @property
    def _is_alive(self) -> bool:
        return self._status["state"] in ALIVE or (self.training is not None and self.training.is_alive)

    def _mind_the_time(self) -> None:
        if self._stop_at is not None and time.monotonic() >= self._stop_at and self._status["state"] in ALIVE:
            self._stop_at = None
            ask(self.run.path, "stop", "the time that was set is over")

    def _hide_agents(self, news: News) -> None:
        """Lines of single agents are there to be switched on, and off at first: the groups' are what one looks at."""
        agents = [agent for row in news.rows[-1:] for agent in row.get("agent_returns", {})]
        new = [agent for agent in agents if agent not in self._agents]
        if new:
            self._agents += new
            self.returns.hidden = [*self.returns.hidden, *new]

    def _trouble(self, error: Exception) -> None:
        self._error.value = problem_html(f"the run cannot be read any more: {error}. Show the panel again to go on.")

    def _show_status(self) -> None:
        status = self._status
        self._controls.show(status)
        if self._controls.request is None:
            self._line.value = note_html(describe_status(status))
        total = status.get("frames_total") or self.run.experiment.frames
        self._bar.value = min(1.0, int(BAR_STEPS * status.get("frames", 0) / total) / BAR_STEPS)
        if status["state"] == "failed":
            self._error.value = problem_html(describe_failure(status, self.run))
        elif status["state"] == "running":
            self._error.value = ""


def attach(run: str | os.PathLike[str] | Run, *, references: Mapping[str, float] | None = None) -> RunPanel:
    """The live panel of a run that is trained anywhere, or that has been.

    Args:
        references: named levels drawn as lines, in units of reward per agent and episode.
    Raises:
        RunError: the folder holds no run.
    """
    return RunPanel(run if isinstance(run, Run) else Run.open(run), references=references)
