"""Decoding: what a linear model reads from an agent's hidden units, beside everything that it must be compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from marlnb.analysis.data.duplicate_episodes import repeats
from marlnb.analysis.data.labels import Classes, Label, Labels, resolve_label, rows_later
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.analysis.data.untrained import untrained_activations
from marlnb.analysis.decoding.linear_decoder import Reading
from marlnb.analysis.decoding.problem import At, Plan, Question, answer, check
from marlnb.analysis.decoding.result import Decoding, DecodingScore, corrected_together
from marlnb.analysis.decoding.streaming import answer_stream
from marlnb.analysis.stats.linear_models import Kind, episode_folds
from marlnb.errors import AnalysisError, unknown
from marlnb.models.policies.policy import Policy

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

MEMORY_BYTES = 4 * 2**30
Answered = tuple[DecodingScore, Reading, np.ndarray]


def decode(
    recording: Recording,
    *,
    site: str | Sequence[str],
    label: Label,
    agent: str | Sequence[str] | None = None,
    at: At = "all",
    offset: int | Sequence[int] = 0,
    checkpoint: int | None = None,
    kind: Kind | None = None,
    folds: int = 5,
    n_shuffles: int = 20,
    episodes: list[int] | None = None,
    seed: int = 0,
    memory_bytes: int = MEMORY_BYTES,
    policies: Mapping[str, Policy] | None = None,
    progress: bool = True,
) -> Decoding:
    """How well a linear model reads a label from sites, in episodes that it was not fitted to.

    Logistic regression for classes (balanced accuracy), ridge regression for quantities (R^2), on standardised units;
    folds are whole episodes, always. Beside each score stand: the constant answer, the labels of other episodes, the
    agent's raw observation, a network of the same architecture with random weights, and a memorisation control. All
    p-values are corrected for the number of scores.

    Args:
        site: as `listener/actor/hidden_1`; several, or globs as `*/actor/hidden_*`.
        label: a label of the recording by name; action, reward or return_to_go (the agent's own); an array `[row]` or
            `[row, agent]` of all its rows, or a function of the recording that returns one; or what another agent does
            or sees: `("listener_0", "action")`, `("speaker_0", "observation", "goal_red")`, with any field that
            `recording.steps` has, return_to_go, recurrent, or a label that it bears.
        agent: one or several agents of the sites' groups; None: each of them.
        at: all (one model for all steps), each (one model a time step: what is known when), or one time step.
        offset: how many steps after the activations the label is taken: 5 asks what is known before it happens, -5
            what is remembered; a list gives a curve. Steps whose label would lie outside the episode are left out.
        checkpoint: the iteration whose rows are read; needed where a recording spans several.
        kind: None: classes for whole numbers, booleans and words, a quantity otherwise.
        n_shuffles: permutations of the labels over episodes; the smallest p-value is 1 / (1 + n_shuffles).
        episodes: indices of those to use; None: all.
        seed: of folds, permutations, control labels and the untrained network.
        memory_bytes: a site that would need more is streamed from the file in batches: ridge exactly, in one pass;
            logistic regression by averaged stochastic gradients.
        policies: by group, of agents from elsewhere: the untrained network is then theirs with its weights shuffled.
        progress: show how far a streamed fit is.
    Raises:
        AnalysisError: unknown site, label or agent; too few episodes for the folds; a label that never varies; a site
            that is constant; a recording of several checkpoints with none chosen. Of several sites or offsets those
            that cannot be answered are left out, and the result's warnings say so.
    """
    if folds < 2 or n_shuffles < 1:
        raise AnalysisError(f"decoding needs at least 2 folds and 1 shuffle; got {folds} and {n_shuffles}")
    sites = _match_sites(recording, site)
    groups = list(dict.fromkeys(name.split("/")[0] for name in sites))
    sources = {group: RowSource(recording, group, policies) for group in groups}
    iteration = sources[groups[0]].one_checkpoint(checkpoint)
    rows = sources[groups[0]].rows(episodes, iteration)
    labels = {group: resolve_label(source, rows, label) for group, source in sources.items()}
    classes = Classes.of(list(labels.values()), kind)
    offsets = tuple(offset) if isinstance(offset, Sequence) else (offset,)
    agents = _chosen_agents(recording, sources, sites, agent)
    name = labels[groups[0]].name
    plan = Plan(at, name, classes, folds, n_shuffles, seed, alone=len(sites) * len(agents) * len(offsets) == 1)
    plan.notes.extend(repeats(recording, rows.episode))
    plan.left_out.notes.extend([classes.note] if classes.note else [])
    answered: list[Answered] = []
    with threadpool_limits(1):  # many small fits: more threads wait for each other, 7 times slower on 2 cores
        for one in sites:
            source = sources[one.split("/")[0]]
            bearers = [a for a in recording[one].labels["agent"] if a in agents]
            asked = _Asked(source, rows, one, labels[source.group], plan)
            if asked.needed_bytes > memory_bytes:
                answered += asked.stream(bearers, offsets, progress)
            else:
                answered += asked.in_memory(bearers, offsets)
    if not answered:
        raise AnalysisError("nothing could be decoded: " + "; ".join(plan.doubts))
    result = Decoding(
        ", ".join(sites),
        name,
        classes.kind,
        classes.names,
        folds,
        n_shuffles,
        tuple(score for score, _, _ in answered),
        plan.doubts,
        tuple(reading for _, reading, _ in answered),
        np.array([shuffled for _, _, shuffled in answered]),
        iteration,
        tuple(dict.fromkeys(plan.left_out.notes)),
    )
    return corrected_together([result])[0]


class _Asked:
    """One site, asked about its agents at each offset."""

    def __init__(self, source: RowSource, rows: Rows, site: str, labels: Labels, plan: Plan) -> None:
        self.source, self.rows, self.site, self.labels, self.plan = source, rows, site, labels, plan
        self.members = source.env.group(source.group).agents
        self.acting = source.acting(rows)

    @property
    def needed_bytes(self) -> int:
        """What the in-memory fits take: activations and untrained ones of all agents, copies of one agent's."""
        units = int(np.prod(self.source.recording[self.site].shape[1:]))
        features = self.source.env.group(self.source.group).observation.size * len(self.members)
        widest = max(units, features) // max(1, len(self.members))
        return len(self.rows) * (4 * (2 * units + features) + 8 * 4 * widest)

    def in_memory(self, agents: Sequence[str], offsets: Sequence[int]) -> Iterator[Answered]:
        source, plan = self.source, self.plan
        activations = source.activations(self.site, self.rows)
        untrained, notes = untrained_activations(source, self.site, self.rows, plan.seed)
        plan.notes.extend(notes)
        observation = source.observations(source.group, self.rows)
        for agent in agents:
            k = self.members.index(agent)
            for offset in offsets:
                found = self.prepared(agent, offset)
                if found is None:
                    continue
                keep, y, fold = found
                question = Question(
                    self.site, agent, offset, activations[keep, k], y, observation[keep, k].reshape(len(y), -1),
                    None if untrained is None else untrained[keep, k], self.rows.episode[keep], self.rows.t[keep], fold,
                )  # fmt: skip
                try:
                    check(question, plan)
                    yield from answer(question, plan)
                except AnalysisError as error:
                    plan.leave_out(error, self.site, agent, offset)

    def stream(self, agents: Sequence[str], offsets: Sequence[int], progress: bool) -> Iterator[Answered]:
        for agent in agents:
            for offset in offsets:
                found = self.prepared(agent, offset)
                if found is None:
                    continue
                try:
                    yield answer_stream(
                        self.source, self.rows, self.site, agent, offset, *found, self.plan, progress=progress
                    )
                except AnalysisError as error:
                    self.plan.leave_out(error, self.site, agent, offset)

    def prepared(self, agent: str, offset: int) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Which rows an agent is asked about, with their encoded labels and folds; None where it cannot be."""
        k, plan = self.members.index(agent), self.plan
        labels = self.labels.later(self.rows, offset)
        y = plan.classes.encode(labels.values[:, k])
        keep = self.acting[:, k] & labels.known[:, k]
        reached = rows_later(self.rows, offset) >= 0
        who = f"{agent} at offset {offset}" if offset else agent
        plan.left_out.add(who, labels.name, self.acting[:, k] & reached, keep, labels.missing[:, k])
        try:
            keep_rows = np.flatnonzero(keep)
            y, episode = y[keep_rows], self.rows.episode[keep_rows]
            plan.check_label(agent, y, episode, self.site)
            return keep_rows, y, episode_folds(y, episode, plan.classes.kind, plan.folds, plan.seed)
        except AnalysisError as error:
            plan.leave_out(error, self.site, agent, offset)
            return None


def _match_sites(recording: Recording, site: str | Sequence[str]) -> list[str]:
    """Recorded sites by name or glob, each once, in the recording's order."""
    asked = [site] if isinstance(site, str) else list(site)
    found = []
    for pattern in asked:
        matching = [name for name in recording.sites if fnmatchcase(name, pattern)]
        if not matching:
            raise AnalysisError(unknown("recorded site", pattern, recording.sites))
        found += matching
    return [name for name in recording.sites if name in found]


def _chosen_agents(
    recording: Recording, sources: dict[str, RowSource], sites: Sequence[str], agent: str | Sequence[str] | None
) -> list[str]:
    """The agents that some site is of, or those asked for."""
    groups = [source.env.group(name) for name, source in sources.items()]
    members = [member for group in groups for member in group.agents]
    bearers = {name for site in sites for name in recording[site].labels["agent"]}
    if agent is None:
        return [member for member in members if member in bearers]
    asked = [agent] if isinstance(agent, str) else list(agent)
    for one in asked:
        if one not in members:
            raise AnalysisError(unknown(f"agent of group {', '.join(sources)!r}", one, members))
        if one not in bearers:
            raise AnalysisError(unknown(f"agent at {', '.join(sites)!r}", one, bearers))
    return asked
