"""The record of a league: one line of `matches.jsonl` for each finished match. Every table is a view of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from marlnb.errors import ConfigError, RunError
from marlnb.populations.append_only import append_rows
from marlnb.training.runs.files import read_lines

MATCHES = "matches.jsonl"
EVALUATION = "evaluation"
MIN_COOPERATIVE_MATCHES = 32
MAX_CORRELATION = 0.9
MAX_RETURN = 1e300  # larger ones are no sums of rewards


@dataclass(frozen=True)
class Match:
    """One episode between players.

    Attributes:
        number: of the learner's episodes, from 0.
        learner: the learning player among whose episodes it was.
        kind: as drawn.
        players: player's id by side, in the order of the sides.
        returns: sum of rewards of each side, averaged over its agents.
        outcomes: of each side: 1 won, 0.5 a draw, 0 lost.
        steps: length of the episode.
        versions: of each side's player, the frames that its weights had learned from when the episode began.
        round: of the league; the draw read the payoff table of its beginning.
        seed: of the episode, if it had one of its own.
    """

    number: int
    learner: str
    kind: str
    players: Mapping[str, str]
    returns: tuple[float, ...]
    outcomes: tuple[float, ...]
    steps: int
    versions: tuple[int, ...] = ()
    round: int = 0
    seed: int | None = None


def outcomes_of(
    sides: Sequence[str],
    returns: Sequence[float],
    win_threshold: Mapping[str, float] | None = None,
    win_margin: float | None = None,
) -> tuple[float, ...]:
    """Who won: the side with the highest return; the sides that share it draw.

    With a margin m and two sides, outcome = 1/2 + lead / 2 m, at least 0 and at most 1.

    Args:
        sides: their names.
        returns: of each side.
        win_threshold: by side, the return above which it wins. If it does not, the sides without a threshold win.
        win_margin: the lead in returns that counts as a whole win; None: any lead.
    """
    if win_margin is not None:
        first = min(max(0.5 + (returns[0] - returns[1]) / (2 * win_margin), 0.0), 1.0)
        return first, 1 - first
    if win_threshold:
        won = [returns[k] > win_threshold[side] for k, side in enumerate(sides) if side in win_threshold]
        others_win = not any(won)
        winners = [
            returns[k] > win_threshold[side] if side in win_threshold else others_win for k, side in enumerate(sides)
        ]
    else:
        best = max(returns)
        winners = [value == best for value in returns]
    if sum(winners) == 1:
        return tuple(float(wins) for wins in winners)
    return tuple(0.5 if wins or not any(winners) else 0.0 for wins in winners)


def scores_of(outcomes: np.ndarray, own: Sequence[int]) -> np.ndarray:
    """1, 0.5 or 0 for each episode: whether the best of a player's sides did better than the best other one.

    Args:
        outcomes: `[episode, side]`, as `outcomes_of` gives them.
        own: indices of the player's sides.
    """
    best, best_other = outcomes[:, own].max(axis=1), np.delete(outcomes, own, axis=1).max(axis=1)
    return np.asarray(0.5 + 0.5 * np.sign(best - best_other))


def even_scores(outcomes: np.ndarray, own: Sequence[int]) -> np.ndarray:
    """`[episode]`: the score of a player as good as the other: the mean over all sides that it could have had.

    Of two sides it is 1/2; of n sides with one winner 1/n for the player that has one of them, (n - 1) / n for the
    other.

    Args:
        outcomes: `[episode, side]`.
        own: indices of the player's sides: one, or all but one.
    """
    alone = np.mean([scores_of(outcomes, [k]) for k in range(outcomes.shape[1])], axis=0)
    return np.asarray(alone if len(own) == 1 else 1 - alone)


def to_row(match: Match) -> dict[str, Any]:
    """Plain JSON of a match."""
    return {**vars(match), "players": dict(match.players)}


def from_row(row: Mapping[str, Any]) -> Match:
    """Raises RunError if a line is not a match."""
    try:
        tuples = {name: tuple(row[name]) for name in ("returns", "outcomes", "versions")}
        match = Match(**{**row, **tuples})
        sizes = {len(match.players), len(match.returns), len(match.outcomes)}
        _check_types(match)
    except (AttributeError, TypeError, KeyError) as error:
        raise RunError(f"a line of {MATCHES} is not a match: {error}; got {str(row)[:200]}") from error
    if len(sizes) != 1:
        raise RunError(f"a line of {MATCHES} has players, returns and outcomes of different lengths: {str(row)[:200]}")
    return match


def _check_types(match: Match) -> None:
    """Raises TypeError. Written out, since a league has tens of thousands of lines."""
    texts = (match.learner, match.kind, *match.players, *match.players.values())
    whole = (match.number, match.steps, match.round, *match.versions, *(() if match.seed is None else (match.seed,)))
    if not all(type(text) is str for text in texts):
        raise TypeError("expected texts as learner, kind and players")
    if not all(type(number) is int for number in whole):
        raise TypeError("expected whole numbers as number, steps, versions, round and seed")
    if not all(type(number) in (int, float) and abs(number) <= MAX_RETURN for number in match.returns):
        raise TypeError("expected finite numbers as returns")
    if not all(type(number) in (int, float) and 0 <= number <= 1 for number in match.outcomes):
        raise TypeError("expected numbers from 0 to 1 as outcomes")


def to_text(matches: Iterable[Match]) -> str:
    """Matches as one string of JSON, for a checkpoint: thousands of them are written faster than as nested rows."""
    return json.dumps([to_row(match) for match in matches])


def from_text(text: str) -> list[Match]:
    """The matches of `to_text`. Raises RunError: a row is not a match."""
    return [from_row(row) for row in json.loads(text)]


def read_matches(folder: Path) -> list[Match]:
    """The matches in a league's folder, in the order in which they ended. An incomplete last line is skipped.

    Raises:
        RunError: another line is damaged.
    """
    return [from_row(row) for row in read_lines(folder / MATCHES)]


def append_matches(folder: Path, matches: Iterable[Match]) -> None:
    """Adds lines to the record, all of them at once."""
    append_rows(folder / MATCHES, map(to_row, matches))


def count_by_kind(matches: Iterable[Match]) -> dict[str, dict[str, int]]:
    """How many matches of each kind each learning player had: `counts[player][kind]`."""
    counts: dict[str, Counter[str]] = {}
    for match in matches:
        counts.setdefault(match.learner, Counter())[match.kind] += 1
    return {player: dict(kinds) for player, kinds in counts.items()}


def check_competitive(matches: Iterable[Match], env_name: str, *, remedy: str, at: str = "") -> bool:
    """Whether the sides compete; False if there are too few matches to tell.

    They do not if their returns are equal in each match, or rise and fall together: a correlation above
    `MAX_CORRELATION` between all pairs of sides, as in a team whose members share a reward and have one of their own.

    Args:
        matches: those so far.
        env_name: for the error, as is `at`, the option that asks for sides that compete.
        remedy: what to do if they do not, as a sentence.
    Raises:
        ConfigError: they do not compete.
    """
    returns = np.array([match.returns for match in matches if any(match.returns)])  # [match, side]
    if len(returns) < MIN_COOPERATIVE_MATCHES:
        return False
    varied = returns.std(0).all()
    correlation = float(np.corrcoef(returns.T).min()) if varied else -1.0
    if (returns == returns[:, :1]).all():
        observed = "all sides had equal returns"
    elif correlation > MAX_CORRELATION:
        observed = f"the returns of the sides rise and fall together (a correlation of {correlation:.2f} or more)"
    else:
        return True
    raise ConfigError(
        f"the sides do not compete: in {env_name} {observed} in the first {len(returns)} matches, so it looks "
        f"cooperative. {remedy}",
        at=at,
    )


def between(matches: Iterable[Match], *players: str) -> Iterator[Match]:
    """The matches in which all of these players took part."""
    return (match for match in matches if set(players) <= set(match.players.values()))


def turn_results(matches: Sequence[Match], player: str) -> dict[str, Any]:
    """Of the matches that ended in a player's turn: how many there were, and its mean outcome against others."""
    outcomes = [
        outcome
        for match in matches
        if len(set(match.players.values())) > 1
        for name, outcome in zip(match.players.values(), match.outcomes)
        if name == player
    ]
    return {"matches": len(matches), "outcome": sum(outcomes) / len(outcomes) if outcomes else None}
