"""inheritance: what each child of a population kept of its parent: similar units, and concepts gained and lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from marlnb.analysis.data.duplicate_episodes import duplicate_episode_warnings
from marlnb.analysis.data.labels import Classes, Label, SeveralLabels, label_list, resolve_label
from marlnb.analysis.data.policy_activations import policy_activations
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.analysis.data.views import Units, View
from marlnb.analysis.decoding.problem import DecodingSettings, Diagnostics, check_label, few_episodes
from marlnb.analysis.populations.inheritance_result import Inheritance
from marlnb.analysis.progress import AnalysisProgress
from marlnb.analysis.representations.similarity import compare_units
from marlnb.analysis.representations.similarity_result import Similarity
from marlnb.analysis.results import ALPHA
from marlnb.analysis.stats.corrections import benjamini_hochberg
from marlnb.analysis.stats.linear_models import FoldScores, Kind, episode_folds, score_folds
from marlnb.errors import AnalysisError, SiteError
from marlnb.populations.evolution.lineage import Lineage
from marlnb.populations.run_population import PopulationMember, RunPopulation
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.specs import derive_seed
from marlnb.training.learners import build_learner

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording


@dataclass(frozen=True)
class _Concept:
    """A label at the rows at which the agent acts and that have one.

    Attributes:
        rows: `[row]`, positions among those at which the agent acts.
        y: `[row]`, class indices or quantities.
        fold: `[row]`.
        observation: scores of the agent's raw observation.
    """

    name: str
    rows: np.ndarray
    y: np.ndarray
    fold: np.ndarray
    kind: Kind
    observation: FoldScores

    def score(self, units: np.ndarray) -> FoldScores:
        """The score of units `[row at which the agent acts, unit]`."""
        return score_folds(units[self.rows], self.y, self.fold, self.kind)


def inheritance(
    population: RunPopulation,
    recording: RecordingLike,
    *,
    site: str,
    agent: str | None = None,
    concepts: SeveralLabels = (),
    of: str | None = None,
    folds: int = 5,
    n_untrained: int = 10,
    n_bootstrap: int = 100,
    seed: int = 0,
    progress: bool = True,
) -> Inheritance:
    """Compares each member of a population with its parent, on the same observations.

    All networks receive the observations of one recording. Similarity is linear CKA with its interval and its control,
    as of `mnb.similarity`. A member holds a concept if a linear model reads it from the units, in episodes that the
    model was not fitted to, better than from both controls:

        the agent's observation    corrected t test over folds (Nadeau and Bengio 2003)
        untrained networks         t = (score - m) / (s sqrt(1 + 1/n)), with mean m and standard deviation s of n
                                   networks of the same architecture with random weights: the test of one more value

    at a false discovery rate of 5% over all members, concepts and controls (Benjamini and Hochberg 1995). A child gains
    a concept that it holds and its parent does not.

    Args:
        population: `run.population`.
        recording: whose observations all networks receive.
        site: whose units are compared, such as `agent/actor/hidden_1`; numbers of units may differ.
        agent: whose observations; None: that of a site that belongs to a single agent.
        concepts: one label or several, as of `mnb.decode`.
        of: a member, as "12-3": it and its ancestors only; None: all members.
        folds: cross-validation folds, of whole episodes.
        n_untrained: random networks of each architecture, 3 or more.
        n_bootstrap: random halves of the episodes, for the intervals of similarities.
        seed: of folds, intervals and untrained networks.
        progress: show how many members are done, if it takes more than two seconds.
    Raises:
        AnalysisError: no generation has ended, no member has the site, or a concept cannot be decoded or has the name
            of another one.
    """
    recording = opened_recording(recording)
    if n_untrained < 3:
        raise AnalysisError(f"n_untrained must be 3 or more; got {n_untrained}")
    members = _members(population, of)
    diagnostics, reader = Diagnostics(single_problem=True), _Reader(recording, site, agent, n_untrained, seed)
    prepared: list[_Concept] | None = None
    parents = _ParentUnits(members)
    compared: list[_Compared] = []
    without: dict[str, SiteError] = {}  # by member that lacks the site
    with AnalysisProgress("inheritance", "members", len(members), shown=progress) as shown:
        for member in members:
            shown.add()
            try:
                units = reader.units(member)
            except SiteError as error:
                without[member.id] = error
                continue
            if prepared is None:
                prepared = [_concept(units, concept, folds, seed, diagnostics) for concept in label_list(concepts)]
                _check_names(prepared)
                diagnostics.messages.extend(duplicate_episode_warnings(recording, units.episode))
            parent = parents.take(member.row)
            similarity = None if parent is None else compare_units(units, parent, "cka", 1, n_bootstrap, seed)
            parents.keep(member.row, units)
            values = units.all()
            scores = [concept.score(values) for concept in prepared]
            compared.append(_Compared(member.row, similarity, scores, reader.untrained_scores(member, units, prepared)))
    if not compared or prepared is None:
        raise [*without.values()][-1]
    return Inheritance(
        population=population.run.path.name,
        site=site,
        agent=units.agent,
        **_edges(compared),
        concepts=tuple(concept.name for concept in prepared),
        **_scores(compared, prepared),
        notes=(f"without {site}, so left out: {', '.join(without)}",) if without else (),
        warnings=diagnostics.warnings,
    )


def _members(population: RunPopulation, of: str | None) -> list[PopulationMember]:
    """All members with weights, or one and its ancestors; parents come before their children.

    Raises:
        AnalysisError: there are none.
    """
    rows = population.lineage() if of is None else population.ancestors(of)
    members = [population[row.id] for row in rows if row.checkpoint is not None]
    if not members:
        raise AnalysisError(f"{population.run.shown_path} has no member with weights: no generation has ended")
    return members


class _ParentUnits:
    """Units of the members with children to come: those of others are not kept, so memory stays bounded."""

    def __init__(self, members: Sequence[PopulationMember]) -> None:
        self._n_children = Counter(member.row.parent_id for member in members)
        self._units: dict[str | None, Units] = {}

    def take(self, child: Lineage) -> Units | None:
        """The units of the child's parent, which the last child takes away; None where it has none."""
        parent = self._units.get(child.parent_id)
        self._n_children[child.parent_id] -= 1
        if not self._n_children[child.parent_id]:
            self._units.pop(child.parent_id, None)
        return parent

    def keep(self, row: Lineage, units: Units) -> None:
        """Keeps a member's units if it has children to come."""
        if self._n_children[row.id]:
            self._units[row.id] = units


@dataclass(frozen=True)
class _Compared:
    """A member with its similarity to its parent, and its scores by concept.

    Attributes:
        untrained: `[concept, network]`, scores of untrained networks.
    """

    row: Lineage
    similarity: Similarity | None
    scores: list[FoldScores]
    untrained: np.ndarray


class _Reader:
    """Reads the units of members, and the scores of untrained networks of their architectures."""

    def __init__(self, recording: Recording, site: str, agent: str | None, n_untrained: int, seed: int) -> None:
        self._recording, self._site, self._agent = recording, site, agent
        self._n_untrained, self._seed = n_untrained, seed
        self._untrained: dict[str, np.ndarray] = {}  # by architecture

    def units(self, member: PopulationMember) -> Units:
        return View(self._recording, self._site, self._agent, policy_source=member).open()

    def untrained_scores(self, member: PopulationMember, units: Units, concepts: Sequence[_Concept]) -> np.ndarray:
        """`[concept, network]`, of networks with the member's architecture and random weights."""
        source, experiment = units.source, member.experiment
        architecture = repr((experiment.actor_of(source.group), experiment.critic_of(source.group)))
        if concepts and architecture not in self._untrained:
            rows = source.rows(None)
            acting = source.acting_positions(rows, units.agent)
            scores = []
            for k in range(self._n_untrained):
                random = replace(experiment, seed=derive_seed(self._seed, "untrained", k))
                policy = build_learner(random, member.spec, member.spec.group(source.group), "cpu").policy.eval()
                values = policy_activations(source, policy, self._site, rows)[acting, units.agent_index]
                scores.append([concept.score(values).mean for concept in concepts])
            self._untrained[architecture] = np.array(scores).T
        return self._untrained.get(architecture, np.zeros((0, self._n_untrained)))


def _concept(units: Units, label: Label, folds: int, seed: int, diagnostics: Diagnostics) -> _Concept:
    """Raises AnalysisError: there is no such label, or it cannot be decoded."""
    source: RowSource = units.source
    rows = Rows(units.index, units.episode, units.t)
    labels = resolve_label(source, rows, label)
    classes = Classes.from_labels(labels, None)
    known = np.flatnonzero(labels.known[:, units.agent_index])
    y, episode = classes.encode(labels.values[:, units.agent_index])[known], units.episode[known]
    settings = DecodingSettings("all", labels.name, classes, folds, 1, seed)
    check_label(units.agent, y, episode, settings)
    diagnostics.messages.extend(f"{units.agent}: {few}" for few in few_episodes(y, episode, settings))
    fold = episode_folds(y, episode, classes.kind, folds, seed)
    observation = source.observations(source.group, rows)[known, units.agent_index].reshape(len(known), -1)
    scores = score_folds(observation, y, fold, classes.kind)
    return _Concept(labels.name, known, y, fold, classes.kind, scores)


def _check_names(concepts: Sequence[_Concept]) -> None:
    """Raises AnalysisError: two concepts have the same name, by which results are looked up."""
    for name, n in Counter(concept.name for concept in concepts).items():
        if n > 1:
            raise AnalysisError(
                f"{n} concepts are named {name!r}; each needs a name of its own: use named functions (def) instead of "
                "lambdas and arrays, or labels of the recording"
            )


def _edges(compared: Sequence[_Compared]) -> dict[str, Any]:
    """The fields of an Inheritance about members and their parents."""
    rows = [each.row for each in compared]
    known = {row.id for row in rows}

    def numbers(objects: Sequence[Any], name: str) -> np.ndarray:
        values = [getattr(each, name, None) for each in objects]
        return np.array([np.nan if value is None else value for value in values])

    similarities = [each.similarity for each in compared]
    return {
        "members": tuple(row.id for row in rows),
        "parents": tuple(row.parent_id if row.parent_id in known else None for row in rows),
        "operators": tuple(row.operator for row in rows),
        "fitness": numbers(rows, "fitness"),
        "output_change": numbers(rows, "output_change"),
        "similarity": numbers(similarities, "score"),
        **{name: numbers(similarities, name) for name in ("low", "high", "shuffled")},
    }


def _scores(compared: Sequence[_Compared], concepts: Sequence[_Concept]) -> dict[str, Any]:
    """The fields of an Inheritance about concepts, each `[member, concept]`."""
    shape = (len(compared), len(concepts))
    position = {each.row.id: k for k, each in enumerate(compared)}
    means, controls, difference, low, high = np.full((5, *shape), np.nan)
    p_values = np.ones((*shape, 2))  # against both controls
    for k, each in enumerate(compared):
        parent = position.get(each.row.parent_id or "")
        for c, (concept, score, untrained) in enumerate(zip(concepts, each.scores, each.untrained)):
            means[k, c], controls[k, c] = score.mean, max(concept.observation.mean, untrained.max())
            gain = score - concept.observation
            p_values[k, c] = gain.p_value if gain.mean > 0 else 1.0, _p_one_more(score.mean, untrained)
            if parent is not None:
                change = score - compared[parent].scores[c]
                difference[k, c], (low[k, c], high[k, c]) = change.mean, change.interval()
    corrected = benjamini_hochberg(p_values.ravel()).reshape(p_values.shape) if concepts else p_values
    return {
        "scores": means,
        "controls": controls,
        "held": (corrected <= ALPHA).all(axis=-1),
        "difference": difference,
        "difference_low": low,
        "difference_high": high,
    }


def _p_one_more(value: float, others: np.ndarray) -> float:
    """One-sided p-value of a value against the distribution of a few others `[network]`, taken as normal."""
    from scipy.special import stdtr  # scipy.stats takes seconds to import

    n = len(others)
    error = float(others.std(ddof=1)) * sqrt(1 + 1 / n)
    return float(stdtr(n - 1, -(value - others.mean()) / error)) if error else float(value <= others.mean())
