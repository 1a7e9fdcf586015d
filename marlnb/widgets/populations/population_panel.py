"""PopulationPanel: a population while it trains, or afterwards: its members, their descent, and how options moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ipywidgets as w
from matplotlib.axes import Axes

from marlnb.display.formatting import count, format_number
from marlnb.display.notebook_html import picture_html
from marlnb.plots.populations.lineage import lineage_tree, option_schedules
from marlnb.populations.evolution.lineage import LINEAGE, Lineage
from marlnb.populations.run_population import PopulationMember, RunPopulation
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from marlnb.training.runs.run import Run
from marlnb.widgets.core.background import LatestOnly
from marlnb.widgets.core.closing import replace_children
from marlnb.widgets.core.controls import Dropdown, button_for
from marlnb.widgets.core.poller import Poller
from marlnb.widgets.core.snapshot import png
from marlnb.widgets.core.style import HTML, LABEL, Message, row, styled, table_html
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.microscope.microscope import Microscope
from marlnb.widgets.populations.followed_panel import EPISODES, FollowedPanel
from marlnb.widgets.populations.league_panel import rendered, set_options

HEAD = ("member", "parent", "operator", "fitness", "score", "changes")


@dataclass(frozen=True)
class PopulationNow:
    """A population at one time.

    Attributes:
        rows: its lineage.
        members: of the last generation, the fittest first.
        tree: the picture of who descends from whom.
    """

    rows: Sequence[Lineage]
    members: Sequence[PopulationMember]
    tree: str


class PopulationPanel(FollowedPanel[PopulationNow]):
    """The population of a run. Everything is read from its files.

    Attributes:
        widget: what a notebook displays.
        population: the population.
        microscope: of the member that was opened last; None before.
    """

    _nothing = "no generation has ended yet"

    def __init__(self, run: Run) -> None:
        self.run, self.population = run, RunPopulation(run)
        self.microscope: Microscope | None = None
        self._stamp: tuple[int, int] | None = None
        self._recording = LatestOnly(wait_s=0)
        self._make()
        self._poller = Poller(self._read, self._show, self._fail)

    def _make(self) -> None:
        self._line, self._error = Message(), Message()
        self._members, self._tree, self._schedule = HTML(), HTML(), HTML()
        self._option = Dropdown(description="option", style=LABEL, layout=w.Layout(width="26em"))
        self._option.observe(lambda _: self._draw_schedule(), "value")
        self._member = Dropdown(description="member", style=LABEL, layout=w.Layout(width="26em"))
        self.open_button = button_for(
            self.open_member, "Play and open", "microscope", f"records {EPISODES} episodes, and opens the first",
            width="11em", disabled=True,
        )  # fmt: skip
        self._about, self._scope = Message(), w.VBox()
        half = w.Layout(width="49%", min_width="22em")
        figures = row(w.VBox([self._tree], layout=half), w.VBox([self._option, self._schedule], layout=half))
        chosen = row(self._member, self.open_button)
        parts = [self._line, self._error, self._members, figures, chosen, self._about, self._scope]
        self.widget = styled(*parts, name="marlnb-population")

    @with_ui_lock
    def open_member(self) -> None:
        """Plays the chosen member in a thread, and shows the first episode below."""
        name = self._member.value
        if not name:
            return
        self.open_button.disabled = True
        self._about.show_note(f"{name} plays {EPISODES} episodes")

        def play() -> tuple[PopulationMember, Recording]:
            member = self.population[name]
            return member, record(member, episodes=EPISODES, name="microscope", exist="open", progress=False)

        self._recording.request(play, self._opened, self._not_opened)

    def _opened(self, played: tuple[PopulationMember, Recording]) -> None:
        member, recording = played
        env = rendered(self.run.experiment.env)
        self.microscope = Microscope(recording, policy_source=member, env=env)
        replace_children(self._scope, [self.microscope.widget])
        self._about.show_note(f"below: {member.id}, recorded in {recording.path}")
        self.open_button.disabled = False

    def _read(self) -> PopulationNow | None:
        """The population now; None if no generation has ended since the last call."""
        try:
            stat = (self.population.folder / LINEAGE).stat()
        except OSError:
            return None
        stamp = stat.st_size, stat.st_mtime_ns
        if not stat.st_size or stamp == self._stamp:
            return None
        rows, members = self.population.lineage(), self.population.members
        ranked = sorted(members, key=lambda member: (member.row.fitness is None, -(member.row.fitness or 0.0)))
        now = PopulationNow(rows, ranked, _picture(lineage_tree(self.population), "who descends from whom"))
        self._stamp = stamp
        return now

    def _show_now(self, now: PopulationNow) -> None:
        best, n_generations = now.members[0], 1 + max(row.generation for row in now.rows)
        config = self.population.config
        means = f" Fitness is the mean of the last {config.window} scores." if config.window > 1 else ""
        fitness = best.row.fitness
        fittest = "each diverged" if fitness is None else f"the fittest is {best.id} with {format_number(fitness)}"
        self._line.show_note(
            f"{count(n_generations, 'generation')} of {config.population} members; {fittest}. "
            f"Below: the last generation, the fittest first.{means}"
        )
        options = list(now.rows[0].options)
        head = (*HEAD, *(path.rpartition(".")[2] for path in options))
        self._members.value = table_html(head, [_cells(member.row, options) for member in now.members])
        self._tree.value = now.tree
        numbers = [path for path in options if isinstance(now.rows[0].options[path], int | float)]
        _offer(self._option, numbers)
        self._draw_schedule()
        _offer(self._member, [member.id for member in now.members if member.row.checkpoint is not None])
        self.open_button.disabled = not self._member.options

    def _draw_schedule(self) -> None:
        if self._option.value:
            axes = option_schedules(self.population, self._option.value)
            self._schedule.value = _picture(axes, f"how {self._option.value} moved")

    def __repr__(self) -> str:
        return f"PopulationPanel({self.run!r})"


def _offer(dropdown: Dropdown, names: list[str]) -> None:
    """Shows these names, the first one chosen unless another one of them is."""
    set_options(dropdown, names)
    if dropdown.value is None and names:
        dropdown.value = names[0]


def _cells(row: Lineage, options: Sequence[str]) -> list[str]:
    changes = [f"{path.rpartition('.')[2]} {_text(old)} → {_text(new)}" for path, (old, new) in row.changes.items()]
    numbers = ["" if value is None else format_number(value) for value in (row.fitness, row.score)]
    values = [_text(row.options[path]) for path in options]
    return [row.id, row.parent_id or "", row.operator, *numbers, ", ".join(changes), *values]


def _text(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _picture(axes: Axes, description: str) -> str:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return picture_html(png(figure), "png", description, "max-width:100%;width:36em")
