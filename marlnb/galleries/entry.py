"""Entry: one folder of a gallery: trained agents, a recording, the recipe and the card."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from markupsafe import Markup

from marlnb.disk import temporary_of
from marlnb.display.formatting import format_bytes, format_count, format_duration
from marlnb.display.notebook_html import facts_html, joined, note_html, table_html, title_html
from marlnb.errors import ConfigError, RunError
from marlnb.galleries.card import CARD, Card, Score
from marlnb.galleries.recipe import Recipe
from marlnb.paths import expanded
from marlnb.training.runs.files import is_run, may_precede

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording
    from marlnb.training.policies.policy_source import PolicySource

RECORDING = "gallery"
"""Name of the recording that an entry has; a copy's own recordings have other names."""
SEPARATOR = "; "
"""Between the scores of groups."""
SCORES = "Return of one agent by checkpoint, mean [95% interval]"


class Entry:
    """One entry of a gallery; `entry.run` is what `mnb.evaluate`, `mnb.record` or `mnb.microscope` take.

    Opening it runs none of its code (`marlnb.trust`). Its folder is shared: `copy` it to train, record or write more.

    Attributes:
        path: the folder; if marlnb trained the agents, it is a run.
        card: what was measured.
        recipe: how it was made, and what is known about it.
    """

    def __init__(self, path: Path) -> None:
        """Raises ConfigError or RunError: the card or the recipe is missing or not valid."""
        self.path, self.card, self.recipe = path, Card.read(path), Recipe.read(path)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def command(self) -> str:
        """What a person types to make it."""
        if self.recipe.command:
            return self.recipe.command
        return f"marlnb gallery make {self.name}"

    @property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.path.rglob("*") if path.is_file())

    @cached_property
    def run(self) -> PolicySource:
        """Its agents: a `marlnb.Run`; `marlnb.Agents` where another library trained or marlnb planted them."""
        if self.recipe.circuit is not None:
            from marlnb.galleries.circuits import planted_agents

            return planted_agents(self.recipe.circuit, self.path)
        if not is_run(self.path):
            from marlnb.training.adapters.benchmarl import agents_from_benchmarl

            return agents_from_benchmarl(self.path)
        from marlnb.training.runs.run import Run

        return Run.open(self.path)

    @cached_property
    def recording(self) -> Recording:
        """Its recording, open for reading."""
        from marlnb.recording.file.reader import Recording

        return Recording.open(self.path / "recordings" / f"{RECORDING}.h5")

    def copy(self, folder: str | os.PathLike[str], *, exist: Literal["error", "open"] = "error") -> Entry:
        """A copy of its own in a new folder, to write into; the files of a batch job may be there already.

        Args:
            exist: "open" returns the copy that the folder holds already, so that a notebook can run again.
        Raises:
            ConfigError: `exist` is neither "error" nor "open".
            RunError: the folder exists; with "open": and is not a copy of this entry. Or it cannot be written.
        """
        if exist not in ("error", "open"):
            raise ConfigError(f"exist must be 'error' or 'open'; got {exist!r}")
        target = expanded(folder)
        if exist == "open" and (target / CARD).is_file() and Card.read(target) == self.card:
            return Entry(target)
        if target.exists() and not self._may_be_copied_to(target):
            if exist == "open":
                raise RunError(f"{target} is not a copy of {self.name}; choose another folder")
            raise RunError(f"{target} exists already; choose another folder, or exist='open' to use the copy in it")
        part = temporary_of(target)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(self.path, part)
            for path in (part, *part.rglob("*")):  # the original may be read-only
                path.chmod(path.stat().st_mode | (0o700 if path.is_dir() else 0o600))
            if target.exists():
                # the card comes last: only a complete copy has it
                for path in sorted(part.iterdir(), key=lambda path: path.name == CARD):
                    path.rename(target / path.name)
            else:
                part.rename(target)
        except OSError as error:
            reason = error.args[0][0][-1] if isinstance(error, shutil.Error) else error  # of the first file
            raise RunError(f"{self.name} cannot be copied to {target}: {reason}") from error
        finally:
            shutil.rmtree(part, ignore_errors=True)
        return Entry(target)

    def _may_be_copied_to(self, folder: Path) -> bool:
        """Whether a folder holds nothing but what a batch job writes before a run starts."""
        return folder.is_dir() and all(
            may_precede(path.name) and not (self.path / path.name).exists() for path in folder.iterdir()
        )

    @property
    def score_text(self) -> str:
        """Scores of the last checkpoint, with intervals."""
        return _scores_text(self.card.final_scores)

    @property
    def random_text(self) -> str:
        """Scores of random actions."""
        return _scores_text(self.card.random_scores)

    def __repr__(self) -> str:
        findings = "".join(f"\n  - {finding.claim}" for finding in self.card.findings)
        return f"<{self.name}: {self.recipe.title}; {self.score_text}; in {self.path}>{findings}"

    @property
    def text(self) -> str:
        """The whole card in lines."""
        facts = "\n".join(f"  {name:<12} {value}" for name, value in self._facts().items())
        scores = "\n".join(f"  {who!s:<14} {name:<14} {text}" for who, name, text in self._score_rows())
        findings = "\n".join(f"  - {finding.text}" for finding in self.card.findings) or "  none"
        limits = "\n".join(f"  - {limit}" for limit in self.recipe.limits)
        return (
            f"{self.name}: {self.recipe.title}\n\n{self.recipe.summary}\n\n{facts}\n\n"
            f"{SCORES}\n{scores}\n\nFindings\n{findings}\n\nLimits\n{limits}"
        )

    def _repr_html_(self) -> str:
        return (
            facts_html(f"{self.name}: {self.recipe.title}", self._facts(), self.recipe.summary)
            + title_html(SCORES)
            + table_html(("checkpoint", "group or agent", "return"), self._score_rows())
            + title_html("Findings" if self.card.findings else "")
            + joined(self._finding_html(finding) for finding in self.card.findings)
            + title_html("Limits")
            + _list_html(self.recipe.limits)
        )

    def _facts(self) -> dict[str, Any]:
        card = self.card
        trained = (
            f"{format_count(card.frames)} frames, {format_duration(card.seconds)}" if card.frames else "not trained"
        )
        return {
            "environment": card.env,
            "algorithm": card.algorithm,
            "training": trained if card.frames else "none",
            "kind": self.recipe.kind,
            "size": format_bytes(self.size_bytes),
            "made by": self.command,
            "versions": ", ".join(f"{name} {version}" for name, version in card.versions.items()),
            "folder": self.path,
        }

    def _score_rows(self) -> list[tuple[object, ...]]:
        return [
            ("random actions" if score.policy == "random" else score.checkpoint, score.name, score.text)
            for score in self.card.scores
        ]

    @staticmethod
    def _finding_html(finding: Any) -> Markup:
        warnings = joined(note_html(f"NOT TO BE TRUSTED: {warning}") for warning in finding.warnings)
        return (
            Markup("<p><b>{}</b><br>{}</p>").format(finding.claim, finding.verdict)
            + note_html(finding.analysis)
            + warnings
        )


def _list_html(texts: tuple[str, ...]) -> Markup:
    items = joined(Markup("<li>{}</li>").format(text) for text in texts)
    return Markup("<ul>{}</ul>").format(items)


def _scores_text(scores: Sequence[Score]) -> str:
    """Each score with its name; one number without a name, where all have the same."""
    texts = {score.name: score.text for score in scores}
    if len(set(texts.values())) == 1:
        return next(iter(texts.values()))
    return SEPARATOR.join(f"{name} {text}" for name, text in texts.items())
