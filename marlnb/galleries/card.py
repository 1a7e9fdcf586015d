"""Card: what was measured of an entry: scores, findings, versions and the hash of each file; `card.json`."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marlnb.codec import from_json, to_json
from marlnb.disk import write_atomically
from marlnb.display.formatting import format_interval
from marlnb.errors import ConfigError, RunError
from marlnb.training.runs.files import read_json

CARD = "card.json"
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Score:
    """The mean return of one agent over episodes that no training run saw.

    Attributes:
        policy: "run" or "random".
        checkpoint: the iteration; None for random actions.
        name: group; an agent, where the agents of a group play against each other.
        mean: return of one agent in one episode.
        low, high: 95% t interval of the mean over episodes.
    """

    policy: str
    checkpoint: int | None
    name: str
    mean: float
    low: float
    high: float

    @property
    def text(self) -> str:
        return format_interval(self.mean, self.low, self.high)


@dataclass(frozen=True)
class Finding:
    """What an analysis said.

    Attributes:
        claim: a person's conclusion.
        analysis: how the result was computed, as a call.
        verdict: the result's own sentence, with its controls.
        warnings: the result's own reasons for distrust.
        values: numbers of the result by position in its JSON; those that a rerun is compared with.
    """

    claim: str
    analysis: str
    verdict: str
    warnings: tuple[str, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All of it in lines."""
        warnings = [f"NOT TO BE TRUSTED: {warning}" for warning in self.warnings]
        return "\n    ".join([self.claim, self.verdict, *warnings, self.analysis])


@dataclass(frozen=True)
class Card:
    """What was measured.

    Attributes:
        env, algorithm: names.
        frames: of the training; 0: not trained.
        seconds: that the training took.
        episodes, seed: of the scores; episode k ran under seed + k, the greedy policy acting.
        versions: of the software.
        files: SHA-256 by path in the folder, of all files but the card.
    """

    env: str
    algorithm: str
    frames: int
    seconds: float
    episodes: int
    seed: int
    scores: tuple[Score, ...]
    findings: tuple[Finding, ...]
    versions: Mapping[str, str]
    files: Mapping[str, str]

    @staticmethod
    def read(folder: Path) -> Card:
        """The card in a folder. Raises ConfigError or RunError: there is none, or it is not valid."""
        return from_json(read_json(folder / CARD), Card, str(folder / CARD))

    def write(self, folder: Path) -> None:
        write_atomically(folder / CARD, json.dumps(to_json(self), indent=1) + "\n")

    @property
    def final_scores(self) -> list[Score]:
        """Those of the last checkpoint."""
        last = max((score.checkpoint or 0 for score in self.scores), default=0)
        return [score for score in self.scores if score.policy == "run" and (score.checkpoint or 0) == last]

    @property
    def random_scores(self) -> list[Score]:
        return [score for score in self.scores if score.policy == "random"]


def versions() -> dict[str, str]:
    """Of the software that decides the numbers."""
    from importlib.metadata import version

    return {"python": platform.python_version(), **{name: version(name) for name in ("marlnb", "torch", "numpy")}}


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of each file in a folder but the card, by its path there.

    Raises:
        ConfigError: the folder has a link, a pipe or a device.
    """
    by_path = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise ConfigError(
                f"{path} is a link or not an ordinary file; an entry of a gallery has files and folders only"
            )
        if path.is_file() and path != folder / CARD:
            by_path[path.relative_to(folder).as_posix()] = _sha256(path)
    return by_path


def check_files(folder: Path, card: Card) -> None:
    """Compares a folder with its card. Raises RunError: files are missing, more or changed; the message names them."""
    present = hashes(folder)
    problems = {
        "missing": sorted(card.files.keys() - present.keys()),
        "not on the card": sorted(present.keys() - card.files.keys()),
        "changed": sorted(name for name in card.files.keys() & present.keys() if card.files[name] != present[name]),
    }
    texts = [f"{kind}: {', '.join(names[:5])}" for kind, names in problems.items() if names]
    if texts:
        raise RunError(f"{folder} differs from its {CARD}; {'; '.join(texts)}")


def value_at(data: Any, position: str) -> float:
    """A number in JSON, as "scores.0.score". Raises ConfigError: there is none; the message names what there is."""
    at = data
    for part in position.split("."):
        items = dict(enumerate(at)) if isinstance(at, list) else at if isinstance(at, Mapping) else {}
        key = int(part) if isinstance(at, list) and part.isdigit() else part
        if key not in items:
            raise ConfigError(f"no {part!r} of {position!r} in the result; it has: {', '.join(map(str, items))}")
        at = items[key]
    if isinstance(at, bool) or not isinstance(at, int | float):
        raise ConfigError(f"{position!r} is not a number in the result; got {at!r}")
    return float(at)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
