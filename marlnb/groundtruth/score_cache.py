"""ScoreCache: scores on disk, one JSON line each, so that an interrupted grid resumes where it stopped."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from marlnb.errors import AnalysisError
from marlnb.groundtruth.planting import Planted
from marlnb.groundtruth.scoring.score import Score


@dataclass(frozen=True)
class CachedScore:
    """One analysis of one instance.

    Attributes:
        score: the score.
        seconds: processor time of the analysis.
        spillover: the instance's largest cross-agent effect, in logits.
    """

    score: Score
    seconds: float
    spillover: float


@dataclass
class ScoreCache:
    """Scores by (hash of the answer key, episodes, analysis).

    A change of an analysis is not detected: use another file, or remove its lines.

    Attributes:
        path: the file.
        lines: its scores.
    """

    path: Path
    lines: dict[tuple[str, int, str], CachedScore] = field(default_factory=dict)

    @staticmethod
    def open(path: Path) -> ScoreCache:
        """Reads a file that may exist; a half-written last line of a killed run is dropped.

        Raises:
            AnalysisError: a line is not a score.
        """
        cache = ScoreCache(path)
        text = path.read_text() if path.exists() else ""
        complete = text[: text.rfind("\n") + 1]
        if complete != text:
            path.write_text(complete)
        for number, line in enumerate(complete.splitlines(), 1):
            try:
                data = json.loads(line)
                key = (data["key_sha256"], data["episodes"], data["score"]["analysis"])
                cache.lines[key] = CachedScore(Score.from_json(data["score"]), data["seconds"], data["spillover"])
            except (ValueError, KeyError, TypeError) as error:
                raise AnalysisError(f"{path}, line {number} is not the score of an instance: {error!r}") from error
        return cache

    def get(self, planted: Planted, episodes: int, analysis: str) -> CachedScore | None:
        return self.lines.get((planted.task.key_sha256, episodes, analysis))

    def add(self, planted: Planted, episodes: int, cached: CachedScore) -> None:
        """Adds a score, and appends it to the file."""
        key = planted.task.key_sha256
        self.lines[key, episodes, cached.score.finding.analysis] = cached
        data = {
            "key_sha256": key,
            "episodes": episodes,
            "score": cached.score.to_json(),
            "seconds": cached.seconds,
            "spillover": cached.spillover,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(data) + "\n")
