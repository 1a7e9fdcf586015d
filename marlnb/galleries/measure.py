"""measure: the scores and findings of an entry, by new episodes, for its card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from marlnb.analysis.stats.paired_test import paired_test
from marlnb.galleries.card import Card, Finding, Score, hashes, versions
from marlnb.galleries.findings import Subject, answer
from marlnb.galleries.recipe import ANALYSED_SEED, SCORED_SEED, Recipe
from marlnb.recording.capture.plan import recording_path
from marlnb.recording.capture.recorder import record
from marlnb.training.policies.evaluation import Evaluation, evaluate
from marlnb.training.policies.policy_source import PolicySource
from marlnb.training.runs.run import Run

ANALYSED = "analysed"
"""Name of that recording, which is deleted afterwards."""


def measure(recipe: Recipe, agents: PolicySource, folder: Path) -> Card:
    """The card of agents in a folder whose other files are complete.

    Raises:
        ConfigError, AnalysisError, EnvError: the episodes cannot be played, or a finding cannot be computed.
    """
    return Card(
        env=agents.spec.name,
        algorithm=algorithm_of(agents),
        frames=int(agents.status().get("frames", 0)) if isinstance(agents, Run) else 0,
        seconds=training_seconds(agents),
        episodes=recipe.episodes,
        seed=SCORED_SEED,
        scores=tuple(scores(agents, recipe.episodes)),
        findings=tuple(findings(recipe, agents)),
        versions=versions(),
        files=hashes(folder),
    )


def scores(agents: PolicySource, episodes: int) -> list[Score]:
    """Of random actions and of each checkpoint."""
    checkpoints = [c.iteration for c in agents.checkpoints] if isinstance(agents, Run) else [agents.origin().iteration]
    evaluations = [evaluate(agents, episodes=episodes, seed=SCORED_SEED, policy="random")]
    evaluations += [evaluate(agents, episodes=episodes, seed=SCORED_SEED, checkpoint=number) for number in checkpoints]
    return [score for evaluation in evaluations for score in _scores(evaluation)]


def findings(recipe: Recipe, agents: PolicySource) -> list[Finding]:
    """The answers to the recipe's questions, from one recording in the agents' folder, deleted afterwards."""
    if not recipe.findings:
        return []
    options = {"seed": ANALYSED_SEED, **recording_options(recipe, recipe.analysed), "name": ANALYSED}
    path = recording_path(agents, ANALYSED)
    path.unlink(missing_ok=True)
    try:
        with record(agents, progress=False, **options) as recording:
            subject = Subject(agents, recording, recipe.circuit)
            return [answer(question, subject) for question in recipe.findings]
    finally:
        path.unlink(missing_ok=True)


def recording_options(recipe: Recipe, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of `record`, with the labels of a planted circuit."""
    if recipe.circuit is None:
        return dict(options)
    from marlnb.galleries.circuits import planted_labels

    return {**options, "labels": planted_labels(recipe.circuit)}


def algorithm_of(agents: PolicySource) -> str:
    """Names of the algorithms, and of the league."""
    experiment = agents.experiment
    if experiment is None:
        return str(getattr(agents, "source", "elsewhere"))
    names: Sequence[str] = list(dict.fromkeys([experiment.algorithm_of(g.name).name for g in agents.spec.groups]))
    league = f", league {experiment.league.name}" if experiment.league is not None else ""
    return " and ".join(names) + league


def training_seconds(agents: PolicySource) -> float:
    """From the last row of the metrics; 0 without a training run."""
    if not isinstance(agents, Run):
        return 0.0
    table = agents.metrics()
    return float(table["seconds"].iloc[-1]) if "seconds" in table and len(table) else 0.0


def _scores(evaluation: Evaluation) -> list[Score]:
    returns = evaluation.table.scored_returns()
    means = {name: paired_test(values) for name, values in returns.items()}
    return [Score(evaluation.policy, evaluation.checkpoint, name, m.mean, m.low, m.high) for name, m in means.items()]
