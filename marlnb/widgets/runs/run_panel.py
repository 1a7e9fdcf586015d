"""RunPanel: a live view of a run, with buttons, wherever it trains: in this kernel, another process or another node.

Everything it shows is read from the run's folder, and each button writes a request there. So closing the browser
changes nothing, and `attach` shows the same panel from another notebook.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

import ipywidgets as w
from matplotlib.figure import Figure

from marlnb.errors import MarlnbError
from marlnb.training.background import Training
from marlnb.training.control import request
from marlnb.training.runs.curves import agent_returns, hidden_at_first, return_curves
from marlnb.training.runs.files import is_run
from marlnb.training.runs.follow import RunChanges, RunFollower
from marlnb.training.runs.run import Run
from marlnb.training.runs.states import RUNNING_STATES
from marlnb.training.train import open_run
from marlnb.widgets.core.closing import replace_children
from marlnb.widgets.core.controls import Accordion, Tab
from marlnb.widgets.core.curves import LiveCurves
from marlnb.widgets.core.poller import Poller
from marlnb.widgets.core.snapshot import Snapshot, learning_curve_figure, with_snapshot
from marlnb.widgets.core.style import HTML, Message, log_html, note_html, problem_html, row, styled
from marlnb.widgets.core.trust_question import TrustQuestion
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.runs.metrics import MetricCurves
from marlnb.widgets.runs.run_buttons import RunButtons
from marlnb.widgets.runs.run_status import describe_error, describe_failure, describe_status

if TYPE_CHECKING:
    from marlnb.models.policies.policy import Policy
    from marlnb.training.trainer import Trainer
    from marlnb.widgets.recordings.recording_panel import RecordingPanel
    from marlnb.widgets.runs.checkpoints_panel import CheckpointsPanel

LIVE_S, IDLE_S = 0.5, 2.0  # minimum time between two readings of the files
MAX_LOG_LINES = 200
PROGRESS_STEPS = 500  # a smaller change of the progress bar is not sent


class RunTab(Protocol):
    """A tab of a RunPanel.

    Attributes:
        widget: what the tab shows.
    """

    widget: w.Widget

    def refresh(self) -> None:
        """Called each time the tab is opened again."""

    def close(self) -> None:
        """Called when the panel is closed: end threads here."""


def _checkpoints_tab(panel: RunPanel) -> RunTab:
    from marlnb.widgets.runs.checkpoints_panel import CheckpointsPanel

    return CheckpointsPanel(panel.run, curves=panel.returns)


def _league_tab(panel: RunPanel) -> RunTab:
    from marlnb.widgets.populations.league_panel import LeaguePanel

    return LeaguePanel(panel.run)


def _population_tab(panel: RunPanel) -> RunTab:
    from marlnb.widgets.populations.population_panel import PopulationPanel

    return PopulationPanel(panel.run)


def _recordings_tab(panel: RunPanel) -> RunTab:
    from marlnb.widgets.recordings.recording_panel import RecordingPanel

    return RecordingPanel(panel.run)


TABS: dict[str, Callable[[RunPanel], RunTab]] = {
    "League": _league_tab,
    "Population": _population_tab,
    "Checkpoints": _checkpoints_tab,
    "Recordings": _recordings_tab,
}
"""By title, what makes a tab when it is opened for the first time; add an entry for a new tab."""


class RunPanel:
    """Curves, progress, losses, log and buttons of one run, with tabs for its league or population, and recordings.

    Attributes:
        run: the run.
        widget: what a notebook displays.
        training: the training that this panel started in this process; None if it started none.
        snapshots: pictures for pages without widgets, which are drawn again as the run proceeds.
        opened: by title, the tabs that have been opened.
        trust_question: a button for the code that another person's folder names; visible until it is allowed.
    """

    def __init__(
        self,
        run: Run,
        *,
        references: Mapping[str, float] | None = None,
        on_discard: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            references: as `attach`.
            on_discard: called under UI_LOCK if a training has failed and its folder is gone, as that of a new run that
                could not start.
        """
        self.run = run
        self.training: Training | None = None
        self._on_discard = on_discard
        self._ended: Training | None = None  # the training of this panel, once the files were read after its end
        self._own_error: BaseException | None = None  # that ended it, if the run's status does not say so
        self.opened: dict[str, RunTab] = {}
        self._follower = RunFollower(run)
        self._events: list[str] = []
        self._status = self._status_before = run.status()
        self._stop_at: float | None = None  # for the training of this panel
        self._beginning = _Beginning()
        self._agents: set[str] = set()
        self._is_settled = True
        self._make(dict(references or {}))
        self._show_status()
        self.snapshots = [Snapshot(self.widget, lambda: repr(self), self.figure)]
        self._poller = self._follow()

    def _make(self, references: dict[str, float]) -> None:
        self.returns = LiveCurves(title=f"{self.run.experiment.env.name}: returns", references=references)
        self.numbers = MetricCurves(self.run)
        self._bar = w.FloatProgress(min=0.0, max=1.0, description="progress", layout=w.Layout(width="22em"))
        self._line, self._error, self._log = Message(), Message(), HTML()
        self.trust_question = TrustQuestion(self._trust)
        asks = [self.trust_question.widget] if self.trust_question.show(self.run.experiment) else []
        self._controls = RunButtons(self.run, self._line, self._error, start=self._start)
        self.buttons = self._controls.buttons
        for button in self.buttons.values():
            button.on_click(lambda _: self._poller.now())
        titles = ["losses and other numbers", "log"]
        details = Accordion([self.numbers.box, self._log], titles=titles, selected_index=None)
        controls = row(*self.buttons.values(), self._bar)
        experiment = self.run.experiment
        missing = {"League": experiment.league is None, "Population": experiment.evolution is None}
        titles = [title for title in TABS if not missing.get(title)]
        self._pages = {"Numbers and log": details, **{title: w.VBox() for title in titles}}
        self.tabs = Tab(list(self._pages.values()), titles=list(self._pages), selected_index=0)
        self.tabs.observe(self._open_tab, "selected_index")
        parts = [*asks, controls, self._line, self._error, self.returns, self.tabs]
        self.widget: w.VBox = styled(*parts, name="marlnb-run")

    @property
    def checkpoints(self) -> CheckpointsPanel | None:
        """The panel of the tab "Checkpoints"; None before that tab was opened."""
        return cast("CheckpointsPanel | None", self.opened.get("Checkpoints"))

    @property
    def recording(self) -> RecordingPanel | None:
        """The panel of the tab "Recordings"; None before that tab was opened."""
        return cast("RecordingPanel | None", self.opened.get("Recordings"))

    @property
    def policies(self) -> dict[str, Policy] | None:
        """By group, of the checkpoint that was last loaded in the tab; None before."""
        return None if self.checkpoints is None else self.checkpoints.policies

    def close(self) -> None:
        """Stops reading the files; a training run continues."""
        self._poller.end()
        for tab in self.opened.values():
            tab.close()

    def catch_up(self) -> None:
        """Shows the current content of the files."""
        self._poller.catch_up()

    @with_ui_lock
    def start(self, *, stop_after_s: float | None = None, is_new: bool = False) -> Training:
        """Starts or resumes the training in a thread of this process. Returns the present training if it is alive.

        Args:
            stop_after_s: seconds after which the training saves and stops; None: never.
            is_new: the folder was created just now: it is deleted again if the training cannot start.
        Raises:
            RunError: another process trains the run. As `marlnb.start`.
        """
        if self.training is None or not self.training.is_alive:
            self._stop_at = None if stop_after_s is None else time.monotonic() + stop_after_s
            self.run.experiment = Run.open(self.run.path).experiment  # its length may have been changed elsewhere
            self._status_before = self.run.status()
            run = open_run(self.run.experiment, self.run.path, resume=True)
            self._beginning = _Beginning()
            self.training = Training(run, (), [self._beginning], is_new=is_new)
            self._poller = self._poller if self._poller.is_alive else self._follow()
            self._poller.now()
        return self.training

    def figure(self) -> Figure | None:
        """The learning curve so far; None before the first episode has ended."""
        return learning_curve_figure(self.run, self.returns.references)

    def _ipython_display_(self, **options: Any) -> None:
        self.snapshots[0].display()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        return with_snapshot(self.widget, repr(self), self.figure)

    def __repr__(self) -> str:
        return f"RunPanel({self.run!r})"

    def _follow(self) -> Poller[tuple[Training | None, RunChanges]]:
        return Poller(self._read, self._show, self._fail)

    def _read(self) -> tuple[Training | None, RunChanges]:
        """The training of this panel if it has ended, and what is new in the run's files, read after that."""
        ended = None if self.training is None or self.training.is_alive else self.training
        return ended, self._follower.read()

    def _start(self) -> None:
        try:
            self.start()
        except MarlnbError as error:
            self._error.show_problem(error)
        else:
            self._error.value = ""
            self._line.show_note("starting")

    def _trust(self) -> None:
        self.run.trust()
        self._error.value = ""
        for tab in self.opened.values():
            tab.refresh()

    def _open_tab(self, change: Any) -> None:
        title = list(self._pages)[change["new"] or 0]
        if title in self.opened:
            self.opened[title].refresh()
        elif title in TABS:
            replace_children(self._pages[title], [HTML(note_html("opening"))])  # some take seconds
            try:
                self.opened[title] = TABS[title](self)
            except Exception as error:  # the tab is made again when it is next chosen
                replace_children(self._pages[title], [HTML(problem_html(describe_error(error)))])
            else:
                replace_children(self._pages[title], [self.opened[title].widget])

    def _show(self, news: tuple[Training | None, RunChanges]) -> float:
        """Shows what `_read` returned. Returns the time until the next reading."""
        ended, changes = news
        has_changed = bool(changes.rows or changes.restarted or changes.status != self._status)
        was_running = self._status["state"] == "running"
        self._note_end(ended, changes.status)
        self._status = changes.status
        if changes.restarted:
            self.returns.clear()
        self._hide_agents(changes)
        self.returns.add(return_curves(changes.rows))
        self.numbers.add(changes.rows, restart=changes.restarted)
        self._is_settled = self._is_settled and not (changes.rows or changes.restarted)
        self._show_status()
        if changes.events:
            self._events = [*self._events, *changes.events][-MAX_LOG_LINES:]
            self._log.value = log_html("\n".join(self._events))
        is_running = self._status["state"] == "running"
        for snapshot in self.snapshots:
            snapshot.renew_soon(now=was_running and not is_running, has_changed=has_changed)
        is_alive = self._status["state"] in RUNNING_STATES
        is_own = self.training is not None and self.training.is_alive
        if not is_own:
            self._stop_at = None
        elif self._stop_at is not None and time.monotonic() >= self._stop_at and self._beginning.has_happened:
            self._stop_at = None
            request(self.run.path, "stop", "the time limit was reached")
        if is_alive or is_own:
            return LIVE_S
        if not self._is_settled:
            self.returns.settle()
            self._is_settled = True
        return IDLE_S

    def _hide_agents(self, changes: RunChanges) -> None:
        """Hides some lines once; the legend switches them on."""
        new = agent_returns(changes.rows[-1]).keys() - self._agents if changes.rows else set()
        if new:
            self._agents |= new
            self.returns.hidden = list(dict.fromkeys([*self.returns.hidden, *hidden_at_first(changes.rows)]))

    def _fail(self, error: Exception) -> None:
        self._line.show_problem(f"the run cannot be read: {error}. The panel tries again every few seconds.")

    def _show_status(self) -> None:
        status = self._status
        self._controls.show(status)
        if self._controls.request is None:
            self._line.show_note(describe_status(status))
        total = status.get("frames_total") or self.run.experiment.frames
        self._bar.value = min(1.0, int(PROGRESS_STEPS * status.get("frames", 0) / total) / PROGRESS_STEPS)
        if self._own_error is not None:
            self._error.show_problem(describe_error(self._own_error))
        elif status["state"] == "failed" and not self._is_starting:
            self._error.show_problem(describe_failure(status, self.run))
        elif status["state"] == "running":
            self._error.value = ""

    def _note_end(self, ended: Training | None, status: dict[str, Any]) -> None:
        """Keeps the error that ended the training of this panel, if its status lacks it, until the state changes."""
        if ended is not self._ended:
            is_reported = status["state"] == "failed" and status != self._status_before
            self._ended = ended
            self._own_error = None if ended is None or is_reported else ended.error
            if self._own_error is not None and not is_run(self.run.path):
                self._on_discard()
        elif self._own_error is not None and status["state"] != self._status["state"]:
            self._own_error = None
            self._error.value = ""

    @property
    def _is_starting(self) -> bool:
        """Whether the training of this panel has not begun yet. If it fails now, its folder may be deleted again."""
        return self.training is not self._ended and not self._beginning.has_happened


class _Beginning:
    """A training callback that knows whether the training has begun. Until then, another one may use the run."""

    def __init__(self) -> None:
        self.has_happened = False

    def begin(self, trainer: Trainer) -> None:
        self.has_happened = True

    def after_iteration(self, trainer: Trainer) -> None:
        """Nothing to do."""

    def end(self, trainer: Trainer) -> None:
        """Nothing to do."""
