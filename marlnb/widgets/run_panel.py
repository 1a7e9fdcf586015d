"""RunPanel: a run as it trains, with buttons; for a training in this kernel, another process or another node alike.

All that it shows comes from the run's folder, and each button leaves a request there. So closing the browser changes
nothing, and `attach` shows the same panel from another notebook.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ipywidgets as w
from matplotlib.figure import Figure

from marlnb.errors import MarlnbError
from marlnb.training.background import Training, start
from marlnb.training.control import Request, ask, is_asked, withdraw
from marlnb.training.follow import News, RunFollower
from marlnb.training.progress import count, duration
from marlnb.training.run import METRICS, Run, read_lines
from marlnb.widgets.curves import LiveCurves
from marlnb.widgets.picture import Still, figure_of_run, with_picture
from marlnb.widgets.poller import Poller
from marlnb.widgets.run_lines import lines_of
from marlnb.widgets.style import log_html, note_html, problem_html, styled

if TYPE_CHECKING:
    from marlnb.widgets.checkpoints_panel import CheckpointsPanel
    from marlnb.widgets.recording_panel import RecordingPanel

LIVE_S, IDLE_S = 0.25, 2.0  # between two looks
ALIVE = ("running", "paused")
LOG_LINES = 200
WORDS = {
    "created": "not begun",
    "running": "training",
    "paused": "paused",
    "interrupted": "interrupted: go on from the last checkpoint",
    "stopped": "stopped: go on from the last checkpoint",
    "complete": "complete",
    "failed": "failed: the last checkpoint is whole",
}
ASKED: dict[Request, str] = {
    "pause": "pausing after the iteration under way",
    "stop": "stopping after the iteration under way, saved",
    "save": "saving after the iteration under way",
}


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
        self._follower = RunFollower(run)
        self._events: list[str] = []
        self._status = run.status()
        self._request: Request | None = None
        self._stop_at: float | None = None
        self._agents: list[str] = []
        self.checkpoints: CheckpointsPanel | None = None
        self.recording: RecordingPanel | None = None
        self._make(dict(references or {}))
        self._show_status()
        self.stills = [Still(self.widget, lambda: repr(self), self.figure)]
        self._has_looked = threading.Event()
        self._poller = Poller(self._look, self._trouble)

    def _make(self, references: dict[str, float]) -> None:
        self.returns = LiveCurves(title=f"{self.run.experiment.env.name}: returns", references=references)
        self.learning = LiveCurves(title="", y_label="")
        self.buttons = {
            "start": _button("Start", "play", "train, or go on from the last checkpoint", self._start),
            "pause": _button("Pause", "pause", "wait after the iteration under way", self._pause),
            "save": _button("Checkpoint", "save", "save after the iteration under way", lambda: self._ask("save")),
            "stop": _button("Stop", "stop", "end after the iteration under way, saved", lambda: self._ask("stop")),
        }
        self._bar = w.FloatProgress(min=0.0, max=1.0, description="progress", layout=w.Layout(width="22em"))
        self._line, self._error, self._log = w.HTML(), w.HTML(), w.HTML()
        self.metric = w.Dropdown(options=["(choose)"], description="draw")
        self.metric.observe(self._draw_metric, "value")
        details = w.Accordion([w.VBox([self.metric, self.learning]), self._log], selected_index=None)
        details.set_title(0, "losses and other numbers")
        details.set_title(1, "log")
        controls = w.HBox([*self.buttons.values(), self._bar], layout=w.Layout(flex_flow="row wrap"))
        self._pages = {"Numbers and log": details, "Checkpoints": w.VBox(), "Recordings": w.VBox()}
        self.tabs = w.Tab(list(self._pages.values()), titles=list(self._pages), selected_index=0)
        self.tabs.observe(self._open_page, "selected_index")
        self.widget = styled(controls, self._line, self._error, self.returns, self.tabs)
        self.widget.add_class("marlnb-run")

    def close(self) -> None:
        """Looks no more; a training goes on."""
        self._poller.end()
        if self.checkpoints is not None:
            self.checkpoints.close()

    def catch_up(self, timeout_s: float = 5.0) -> None:
        """Waits until all that stands in the files now is shown."""
        for _ in range(2):  # the first look may be one that had begun before
            self._has_looked.clear()
            self._poller.now()
            self._has_looked.wait(timeout_s)

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
            self._poller = self._poller if self._poller.is_alive else Poller(self._look, self._trouble)
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
            from marlnb.widgets.checkpoints_panel import CheckpointsPanel

            self.checkpoints = CheckpointsPanel(self.run, curves=self.returns)
            self._pages["Checkpoints"].children = (self.checkpoints.widget,)
        elif change["new"] == 2 and self.recording is None:
            from marlnb.widgets.recording_panel import RecordingPanel

            self.recording = RecordingPanel(self.run)
            self._pages["Recordings"].children = (self.recording.widget,)
        elif change["new"] == 2 and self.recording is not None:
            self.recording.refresh()  # checkpoints may have come since

    def _pause(self) -> None:
        if self._status["state"] == "paused" or is_asked(self.run.path, "pause"):
            withdraw(self.run.path, "pause")
            self._request = None
            self._line.value = note_html("going on")
        else:
            self._ask("pause")
        self._show_buttons()
        self._poller.now()

    def _ask(self, request: Request) -> None:
        try:
            ask(self.run.path, request)
        except OSError as error:
            self._error.value = problem_html(f"{self.run.path} cannot be written to: {error.strerror or error}")
            return
        self._request = request
        self._line.value = note_html(ASKED[request])

    def _look(self) -> float | None:
        """One look at the run's files; how long until the next."""
        news = self._follower.look()
        was_running, self._status = self._status["state"] == "running", news.status
        if news.again:
            self.returns.clear()
        self._hide_agents(news)
        self.returns.add(lines_of(news.rows))
        self._draw_new(news.rows)
        if self._stop_at is not None and time.monotonic() >= self._stop_at and news.status["state"] in ALIVE:
            self._stop_at = None
            ask(self.run.path, "stop", "the time that was set is over")
        if self._request is not None and self._is_heeded(self._request):
            self._request = None
        self._show_status()
        if news.events:
            self._events = [*self._events, *news.events][-LOG_LINES:]
            self._log.value = log_html("\n".join(self._events))
        alive = self._status["state"] in ALIVE or (self.training is not None and self.training.is_alive)
        if not alive and (news.rows or self.returns.lines != self.returns.get_state("lines")["lines"]):
            self.returns.settle()
        for still in self.stills:
            still.renew(now=was_running and self._status["state"] != "running")
        self._has_looked.set()
        return LIVE_S if alive else IDLE_S

    def _is_heeded(self, request: Request) -> bool:
        """Whether a request was met; one to pause lies there for as long as the pause."""
        return not is_asked(self.run.path, request) or (request == "pause" and self._status["state"] == "paused")

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
        if self._request is None:
            self._line.value = note_html(describe_status(status))
        total = status.get("frames_total") or self.run.experiment.frames
        self._bar.value = min(1.0, status.get("frames", 0) / total)
        failed = status["state"] == "failed"
        if failed:
            self._error.value = problem_html(_failure(status, self.run))
        elif status["state"] == "running":
            self._error.value = ""
        self._show_buttons()

    def _show_buttons(self) -> None:
        state = self._status["state"]
        alive = state in ALIVE
        self.buttons["start"].disabled = alive or state == "complete"
        self.buttons["start"].description = "Start" if state == "created" else "Go on"
        for name in ("pause", "save", "stop"):
            self.buttons[name].disabled = not alive
        waiting = state == "paused" or is_asked(self.run.path, "pause")
        self.buttons["pause"].description = "Resume" if waiting else "Pause"
        self.buttons["pause"].icon = "play" if waiting else "pause"

    def _draw_new(self, rows: list[dict[str, Any]]) -> None:
        names = sorted({name for row in rows[-1:] for name in _numbers(row)})
        if names and len(names) + 1 != len(self.metric.options):
            chosen = self.metric.value
            self.metric.options = ["(choose)", *names]
            self.metric.value = chosen if chosen in self.metric.options else "(choose)"
        self._add_metric(rows)

    def _draw_metric(self, change: Any) -> None:
        self.learning.clear()
        self.learning.title = "" if self.metric.value == "(choose)" else self.metric.value
        self._add_metric(read_lines(self.run.path / METRICS))

    def _add_metric(self, rows: list[dict[str, Any]]) -> None:
        if self.metric.value == "(choose)":
            return
        found = [(row["frames"], _numbers(row).get(self.metric.value)) for row in rows]
        known = [(x, y) for x, y in found if y is not None]
        if known:
            self.learning.add({self.metric.value: ([x for x, _ in known], [y for _, y in known])})


def attach(run: str | os.PathLike[str] | Run, *, references: Mapping[str, float] | None = None) -> RunPanel:
    """The live panel of a run that is trained anywhere, or that has been.

    Args:
        references: named levels drawn as lines, in units of reward per agent and episode.
    Raises:
        RunError: the folder holds no run.
    """
    return RunPanel(run if isinstance(run, Run) else Run.open(run), references=references)


def describe_status(status: Mapping[str, Any]) -> str:
    """One line: state, how far, how fast, how long yet, where."""
    parts = [WORDS.get(status["state"], status["state"])]
    if status.get("frames_total"):
        parts.append(f"{count(status.get('frames', 0))} of {count(status['frames_total'])} frames")
    if status["state"] == "running" and status.get("frames_per_second"):
        parts.append(f"{count(status['frames_per_second'])} frames a second")
        if status.get("eta_s") is not None:
            parts.append(f"{duration(status['eta_s'])} left")
    if status["state"] in ALIVE and status.get("host"):
        parts.append(f"on {status['host']}, process {status.get('pid')}")
    return ", ".join(parts)


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of one iteration by path, as `listener/entropy`."""
    learning = {
        f"{group}/{name}": value
        for group, values in row.get("learning", {}).items()
        for name, value in values.items()
        if isinstance(value, int | float)
    }
    own = ("frames_per_second", "stepping_s", "acting_s", "learning_s", "length")
    return {**learning, **{name: row[name] for name in own if isinstance(row.get(name), int | float)}}


def _failure(status: Mapping[str, Any], run: Run) -> str:
    """What failed, what raised, where, and what to do: few lines, since the log has the traceback."""
    told = str(status.get("error", "it failed")).strip().splitlines()
    where = [line.strip() for line in reversed(run.events()) if line.strip().startswith("File ")]
    goes_on = "Go on resumes from the last checkpoint" if run.checkpoints else "Go on begins again"
    hint = f"The log below has the traceback. {goes_on}; if you mend a module, restart the kernel first."
    return "\n".join([told[0], *told[-1:][: len(told) - 1], *where[:1], hint])


def _button(name: str, icon: str, tooltip: str, act: Any) -> w.Button:
    button = w.Button(description=name, icon=icon, tooltip=tooltip, layout=w.Layout(width="8.5em"))
    button.add_class(f"marlnb-{name.lower()}")
    button.on_click(lambda _: act())
    return button
