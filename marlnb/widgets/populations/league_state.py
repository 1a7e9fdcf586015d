"""What a league's panel shows, read from the files of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from marlnb.display.notebook_html import joined
from marlnb.errors import MarlnbError
from marlnb.populations.league.matches import MATCHES
from marlnb.populations.league.player_log import PLAYERS, PlayerEvent
from marlnb.populations.league.rating_history import MAX_POINTS, RoundRatings, evenly, ratings_over_rounds
from marlnb.populations.league.summary import LeagueSummary
from marlnb.populations.run_league import RunLeague
from marlnb.populations.training.other_processes.requests import REQUESTS, PlayerRequest
from marlnb.training.runs.run import Run

BETTER, WORSE = "0, 114, 178", "230, 159, 0"  # the first two colours of figures


@dataclass(frozen=True)
class LeagueNow:
    """A league at one time.

    Attributes:
        summary: players, matches by kind, win rates and ratings.
        events: what happened to players.
        ratings: new points of the ratings over time.
        requests: that no training run has handled yet.
        restarted: whether the files were cut, as by a resume: earlier points are not valid.
    """

    summary: LeagueSummary
    events: Sequence[PlayerEvent]
    ratings: Sequence[RoundRatings]
    requests: Sequence[PlayerRequest]
    restarted: bool


class LeagueFollower:
    """Reads a league's files again where they have changed."""

    def __init__(self, run: Run) -> None:
        self.run, self.league = run, RunLeague(run)
        self._seen: tuple[object, ...] = ()
        self._round = -1

    def read(self) -> LeagueNow | None:
        """The league now; None if nothing has changed since the last call, or there is no match yet.

        Raises:
            RunError: a file is damaged.
        """
        seen = tuple(_stamp(self.league, name) for name in (MATCHES, PLAYERS, REQUESTS))
        if seen == self._seen or seen[0] is None:
            return None
        matches, events = self.league.matches(), self.league.events()
        rounds = sorted({match.round for match in matches})
        restarted = bool(rounds) and rounds[-1] < self._round
        new = [number for number in rounds if restarted or number > self._round]
        chosen = evenly(new, MAX_POINTS) if len(new) > 1 else new
        config = self.league.config
        by_frames = bool(config.learner)
        ratings = list(ratings_over_rounds(matches, events, config.decay, chosen, by_frames=by_frames))
        now = LeagueNow(self.league.summary(), events, ratings, self.league.pending_requests(), restarted)
        self._seen, self._round = seen, rounds[-1] if rounds else -1
        return now


def _stamp(league: RunLeague, name: str) -> tuple[int, int] | None:
    try:
        stat = (league.folder / name).stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns


def counts_html(summary: LeagueSummary) -> Markup:
    """A table of the matches of each player by kind."""
    table, numbers = summary.matches, _numbers(summary)
    head = ["player", *(str(kind).replace("_", " ") for kind in table.columns), "all"]
    rows = []
    for name, row in zip(table.index, table.to_numpy()):
        cells = [f"{numbers[str(name)]} {name}", *(f"{n:,}" if n else "" for n in row), f"{row.sum():,}"]
        rows.append([(cell, "", "") for cell in cells])
    return _table("matches by kind", head, rows)


def payoff_html(summary: LeagueSummary) -> Markup:
    """A table of win rates: blue where the player of the line wins more often, orange where it loses more often."""
    rates, rows = summary.win_rates, []
    numbers = _numbers(summary)
    head = [numbers[name] + mark + rest for name, mark, rest in (str(each).partition("@") for each in rates.columns)]
    for name, row in zip(rates.index, rates.to_numpy()):
        cells = [(f"{numbers[name]} {name}", "", "")]
        for opponent, rate in zip(rates.columns, row):
            if rate != rate:
                cells.append(("–", "", f"{name} and {opponent} have not met"))
                continue
            colour = f"background: rgba({BETTER if rate > 0.5 else WORSE}, {1.3 * abs(rate - 0.5):.2f})"
            cells.append((f"{rate:.2f}", colour, f"{name} wins {rate:.0%} of the games against {opponent}"))
        rows.append(cells)
    return _table("win rate of the line against the column; @* are a player's snapshots", ["", *head], rows)


def _numbers(summary: LeagueSummary) -> dict[str, str]:
    """By player, its number, which stands for it in the columns of win rates."""
    return {str(name): f"#{number}" for number, name in summary.players["player"].items()}


def _table(caption: str, head: Sequence[str], rows: Sequence[Sequence[tuple[str, str, str]]]) -> Markup:
    """A table of (text, style, title) cells."""
    header = joined(Markup('<th scope="col">{}</th>').format(name) for name in head)
    cell = Markup('<td style="padding: 3px 10px; {}" title="{}">{}</td>')
    lines = joined(
        Markup("<tr>{}</tr>").format(joined(cell.format(style, title, text) for text, style, title in row))
        for row in rows
    )
    return Markup(
        '<div class="marlnb-table" style="overflow-x: auto"><table>'
        '<caption style="text-align: left; white-space: nowrap">{}</caption>'
        "<thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>"
    ).format(caption, header, lines)


def weights_tag(league: RunLeague, *names: str) -> str:
    """Eight characters of each player's weights, so that a recording of later weights has another name."""
    try:
        return "-".join(league[name].origin().sha256[:8] for name in names)
    except MarlnbError as error:
        raise type(error)(f"{' and '.join(names)} cannot play: {error}") from error
