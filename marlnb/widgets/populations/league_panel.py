"""LeaguePanel: a league while it trains, or afterwards: who meets whom, who wins, and what its snapshots do."""

from __future__ import annotations

from dataclasses import fields, replace

import ipywidgets as w

from marlnb.analysis.populations.match import match
from marlnb.analysis.populations.match_result import MatchResult
from marlnb.config import EnvConfig
from marlnb.errors import MarlnbError
from marlnb.populations.run_league import RunLeague
from marlnb.populations.training.other_processes.requests import RequestAction
from marlnb.training.runs.run import Run
from marlnb.training.runs.states import RUNNING_STATES
from marlnb.widgets.core.background import LatestOnly
from marlnb.widgets.core.closing import replace_children
from marlnb.widgets.core.controls import Dropdown, button_for
from marlnb.widgets.core.curves import LiveCurves
from marlnb.widgets.core.poller import Poller
from marlnb.widgets.core.style import HTML, LABEL, Message, row, styled
from marlnb.widgets.core.ui_lock import with_ui_lock
from marlnb.widgets.microscope.microscope import Microscope, microscope
from marlnb.widgets.populations.followed_panel import EPISODES, FollowedPanel
from marlnb.widgets.populations.league_state import LeagueFollower, LeagueNow, counts_html, payoff_html, weights_tag
from marlnb.widgets.populations.timeline import SnapshotTimeline


class LeaguePanel(FollowedPanel[LeagueNow]):
    """The league of a run. Everything is read from its files; freezing and retiring are requests in its folder.

    Attributes:
        widget: what a notebook displays.
        league: the league.
        timeline: the snapshots; the chosen one can be opened in the microscope.
        microscope: of the match that was played last; None before.
        result: of that match.
    """

    _nothing = "no match has ended yet"

    def __init__(self, run: Run) -> None:
        self.run, self.league = run, RunLeague(run)
        self.microscope: Microscope | None = None
        self.result: MatchResult | None = None
        self._follower, self._playing = LeagueFollower(run), LatestOnly(wait_s=0)
        self._make()
        self._poller = Poller(self._follower.read, self._show, self._fail)

    def _make(self) -> None:
        self._line, self._error, self._counts, self._payoff = Message(), Message(), HTML(), HTML()
        rounds = "round of the league"
        self.elo = LiveCurves(title="Elo of each player", y_label="Elo", x_label=rounds)
        cyclic = "cyclic share"
        self.cycles = LiveCurves(title="what Elo cannot show", y_label=cyclic, x_label=rounds)
        self.elo.height = self.cycles.height = 170
        self.timeline = SnapshotTimeline()
        self.timeline.observe(lambda _: self._choose(), "chosen")
        self._opponent = Dropdown(description="against", style=LABEL, layout=w.Layout(width="26em"))
        self.open_button = button_for(
            self.open_microscope, "Play and open", "microscope", f"plays {EPISODES} episodes, and opens the first",
            width="11em", disabled=True,
        )  # fmt: skip
        self._about, self._scope = Message(), w.VBox()
        self._about.show_note("choose a snapshot: a dot on the lines above")
        self._player = Dropdown(description="player", style=LABEL, layout=w.Layout(width="26em"))
        freeze = "after this round it plays, but no longer learns"
        retire = "after this round it neither learns nor plays"
        self.buttons = {
            "freeze": button_for(lambda: self.request("freeze"), "Freeze", "snowflake-o", freeze, width="8em"),
            "retire": button_for(lambda: self.request("retire"), "Retire", "stop", retire, width="8em"),
        }
        self._offer_players([])
        self._requested = Message()
        tables = row(w.VBox([self._counts], layout=w.Layout(margin="0 2em 0 0")), self._payoff)
        half = w.Layout(width="49%", min_width="22em")
        curves = row(w.VBox([self.elo], layout=half), w.VBox([self.cycles], layout=half))
        chosen = row(self._opponent, self.open_button)
        control = row(self._player, *self.buttons.values())
        parts = [self._line, self._error, tables, curves, control, self._requested, self.timeline, self._about, chosen]
        self.widget = styled(*parts, self._scope, name="marlnb-league")

    @with_ui_lock
    def open_microscope(self) -> None:
        """Plays the chosen snapshot against the chosen opponent in a thread, and shows the first episode below."""
        first, second = self.timeline.chosen, self._opponent.value
        if not first or not second:
            return
        self.open_button.disabled = True
        self._about.show_note(f"{first} plays {EPISODES} episodes against {second}")

        def play() -> MatchResult:
            name = f"{first}-{second}-{weights_tag(self.league, first, second)}"
            players = (self.league[first], self.league[second])
            return match(*players, episodes=EPISODES, name=name, progress=False)

        self._playing.request(play, self._opened, self._not_opened)

    @with_ui_lock
    def request(self, action: RequestAction) -> None:
        """Asks the training to freeze or retire the chosen player."""
        try:
            getattr(self.league, action)(self._player.value, "requested in the panel")
        except (MarlnbError, OSError) as error:
            self._requested.show_problem(error)
        else:
            self._requested.show_note(f"{action} {self._player.value} {self._when}")
        self._poller.now()

    def _opened(self, result: MatchResult) -> None:
        self.result, self.microscope = result, microscope(result.recording, env=rendered(self.run.experiment.env))
        replace_children(self._scope, [self.microscope.widget])
        self._about.show_note(f"{result.verdict} Below: {result.a} as {next(iter(result.recordings))}.")
        self.open_button.disabled = False

    def _choose(self) -> None:
        chosen = self.timeline.chosen
        self.open_button.disabled = not chosen
        text = f"{chosen}: choose whom it plays against" if chosen else "choose a snapshot: a dot on the lines above"
        self._about.show_note(text)

    def _show_now(self, now: LeagueNow) -> None:
        summary = now.summary
        self._line.show_note(f"{summary.title}. {summary.ratings.verdict}")
        self._counts.value, self._payoff.value = counts_html(summary), payoff_html(summary)
        states = dict(zip(summary.players["player"], summary.players["state"]))
        if now.restarted:
            self.elo.clear()
            self.cycles.clear()
        self._add_ratings(now, list(states))
        end = max([1, *(event.frames for event in now.events), *summary.players["frames"].tolist()])
        self.timeline.show(now.events, states, end)
        set_options(self._opponent, [name for name, state in states.items() if state != "retired"])
        self._offer_players([name for name, state in states.items() if state == "learning"])
        if now.requests:
            asked = ", ".join(f"{request.action} {request.player}" for request in now.requests)
            self._requested.show_note(f"{self._when}: {asked}")
        elif stopped := [name for name, state in states.items() if state != "learning"]:
            self._requested.show_note(", ".join(f"{name} is {states[name]}" for name in stopped))

    def _offer_players(self, names: list[str]) -> None:
        """Offers these players to freeze and retire."""
        set_options(self._player, names)
        for button in self.buttons.values():
            button.disabled = not names

    @property
    def _when(self) -> str:
        """When a request is carried out."""
        is_training = self.run.status()["state"] in RUNNING_STATES
        return "at the end of this round" if is_training else "when the run is resumed"

    def _add_ratings(self, now: LeagueNow, players: list[str]) -> None:
        points: dict[str, tuple[list[float], list[float]]] = {}
        for point in now.ratings:
            for player in players:
                if player in point.elo:
                    x, y = points.setdefault(player, ([], []))
                    x.append(float(point.round))
                    y.append(point.elo[player])
        self.elo.add(points)
        shares = [point.cyclic_share for point in now.ratings]
        if shares:
            self.cycles.add({"cyclic share": ([float(point.round) for point in now.ratings], shares)})

    def __repr__(self) -> str:
        return f"LeaguePanel({self.run!r})"


def rendered(env: EnvConfig) -> EnvConfig | None:
    """The environment with pictures, where that is one of its options; None: as it is."""
    can_choose = any(item.name == "render" for item in fields(env))
    return replace(env, render=True) if can_choose else None  # type: ignore[call-arg]


def set_options(dropdown: Dropdown, names: list[str]) -> None:
    """Other choices; the chosen one stays if it is still there, else the first is chosen."""
    if list(dropdown.options) != names:
        before = dropdown.value
        dropdown.options = names
        dropdown.value = before if before in names else next(iter(names), None)
