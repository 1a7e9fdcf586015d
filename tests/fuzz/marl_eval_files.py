"""Results of other libraries in marl-eval's layout, changed at random: read, compared, shown and written again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from marlnb.analysis.benchmarking.comparison import compare_runs
from marlnb.analysis.benchmarking.marl_eval import read_marl_eval, to_layout
from tests.fuzz.processes import Outcome
from tests.fuzz.values import Generator, changed_bytes, changed_json, json_bytes

N_STEPS, N_EPISODES = 3, 4


class MarlEvalFiles:
    """A target of changed JSON files."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "results.json"
        self.original = {"env": {task: {name: _seeds(k) for k, name in enumerate(("a", "b"))} for task in ("x", "y")}}

    def draw(self, generator: Generator) -> bytes:
        layout: Any = self.original
        for _ in range(int(generator.integers(1, 4))):
            layout = changed_json(layout, generator)
        content = json_bytes(layout)
        return changed_bytes(content, generator) if generator.random() < 0.2 else content

    def outcome(self, data: bytes) -> Outcome:
        self.path.write_bytes(data)
        runs = read_marl_eval(self.path)
        self.path.write_text(json.dumps(to_layout(runs), allow_nan=False))
        if str(read_marl_eval(self.path)) != str(runs):
            return "changed", "the runs differ after they were written and read again"
        comparison = compare_runs(runs, scale="min-max")
        repr(comparison), comparison._repr_html_()
        return "accepted", ""


def _seeds(algorithm: int) -> dict[str, Any]:
    """Runs of one algorithm by seed."""

    def metrics(k: int, seed: int) -> dict[str, Any]:
        return {"return": [0.5 * k + algorithm + seed + episode for episode in range(N_EPISODES)]}

    return {
        f"seed_{seed}": {
            **{
                f"step_{k}": {"step_count": 100 * (k + 1), "elapsed_time": 2.5 * k, **metrics(k, seed)}
                for k in range(N_STEPS)
            },
            "absolute_metrics": metrics(N_STEPS, seed),
        }
        for seed in range(2)
    }
