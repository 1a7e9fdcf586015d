"""Ledger: scores that were reached, one JSON line each, so that an interrupted grid goes on where it stopped."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from marlnb.errors import AnalysisError
from marlnb.groundtruth.planting import Planted
from marlnb.groundtruth.scoring.score import Score


@dataclass(frozen=True)
class Scored:
    """One analysis of one instance, its processor time, and the instance's largest cross-agent effect (logits)."""

    score: Score
    seconds: float
    spillover: float


@dataclass
class Ledger:
    """Scores by (answer key, episodes, analysis): other keys, or more episodes, are other questions.

    An analysis that changed is not known to have: take another file, or remove its lines.
    """

    path: Path
    lines: dict[tuple[str, int, str], Scored] = field(default_factory=dict)

    @staticmethod
    def open(path: Path) -> Ledger:
        """Reads what is there; a last line that a killed run left half written is dropped.

        Raises:
            AnalysisError: a line is no score.
        """
        found = Ledger(path)
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            path.write_text(whole)
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                data = json.loads(line)
                key = (data["key_sha256"], data["episodes"], data["score"]["analysis"])
                found.lines[key] = Scored(Score.from_json(data["score"]), data["seconds"], data["spillover"])
            except (ValueError, KeyError, TypeError) as error:
                raise AnalysisError(f"{path}, line {number} is no score of an instance: {error!r}") from error
        return found

    def get(self, subject: Planted, episodes: int, analysis: str) -> Scored | None:
        return self.lines.get((subject.question.key_sha256, episodes, analysis))

    def add(self, subject: Planted, episodes: int, scored: Scored) -> None:
        analysis = scored.score.finding.analysis
        self.lines[subject.question.key_sha256, episodes, analysis] = scored
        data = {
            "key_sha256": subject.question.key_sha256,
            "episodes": episodes,
            "score": scored.score.to_json(),
            "seconds": scored.seconds,
            "spillover": scored.spillover,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(data) + "\n")
