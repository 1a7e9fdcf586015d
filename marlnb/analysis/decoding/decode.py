"""Decode a label from hidden units with a linear model, next to every control that it must be compared with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from marlnb.analysis.data.duplicate_episodes import duplicate_episode_warnings
from marlnb.analysis.data.given import Given, GivenColumns, given_columns
from marlnb.analysis.data.labels import Classes, Label, Labels, resolve_label, rows_later
from marlnb.analysis.data.policy_activations import (
    is_function_of_observation,
    policy_activations,
    untrained_policy,
)
from marlnb.analysis.data.row_condition import Condition, rows_name, rows_note, rows_where
from marlnb.analysis.data.rows import Rows, RowSource
from marlnb.analysis.data.views import chosen_names, match_recorded_sites
from marlnb.analysis.decoding.problem import (
    At,
    DecodingOutcome,
    DecodingProblem,
    DecodingSettings,
    DecodingTarget,
    Diagnostics,
    check_activations,
    check_label,
    solve,
)
from marlnb.analysis.decoding.result import Decoding, corrected_together
from marlnb.analysis.decoding.streaming import solve_streaming
from marlnb.analysis.progress import AnalysisProgress
from marlnb.analysis.stats.linear_models import Kind, episode_folds
from marlnb.errors import AnalysisError
from marlnb.models.hooks.sites import group_of
from marlnb.models.policies.policy import Policy
from marlnb.recording.file.opened import RecordingLike, opened_recording
from marlnb.values import checked_number

if TYPE_CHECKING:
    from marlnb.recording.file.reader import Recording

MEMORY_BYTES = 4 * 2**30


def decode(
    recording: RecordingLike,
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
    episodes: Sequence[int] | None = None,
    rows: Condition | None = None,
    given: Given | None = None,
    seed: int = 0,
    memory_bytes: int = MEMORY_BYTES,
    policies: Mapping[str, Policy] | None = None,
    progress: bool = True,
) -> Decoding:
    """Scores how well a linear model reads a label from sites, in episodes that it was not fitted to.

    Classes are read with logistic regression and scored by balanced accuracy, quantities with ridge regression and
    scored by R². Units are standardised. Folds are always whole episodes. Each score comes with its controls: the best
    constant answer, labels of other episodes, the agent's raw observation, a network of the same architecture with
    random weights, and a memorisation control (Hewitt and Liang 2019). `p_holm`, `p_fdr` and `p_max` are corrected for
    the number of scores; `p_value` is not.

    Args:
        site: for example `listener/actor/hidden_1`; several, or globs such as `*/actor/hidden_*`.
        label: a label of the recording by name; the agent's own action, reward or return_to_go; an array `[row]` or
            `[row, agent]` of all its rows; a function of the recording that returns one; or what another agent does
            or observes: `("listener_0", "action")`, `("speaker_0", "observation", "goal_red")`, with any field of
            `recording.steps`, return_to_go, recurrent, or a label of that agent.
        agent: one or several agents of the sites' groups; None for all.
        at: all (one model for all time steps), each (one model per time step: what is known when), or one time step.
        offset: steps from the activations to the label. 5 asks what is known before it happens, -5 what is
            remembered. A list gives a curve. Steps whose label is outside the episode are left out.
        checkpoint: iteration whose rows are read; required if a recording spans several.
        kind: None: classes for whole numbers, booleans and words, otherwise a quantity.
        folds: cross-validation folds, 2 or more.
        n_shuffles: permutations of the labels over episodes; the smallest possible p-value is 1 / (1 + n_shuffles).
        episodes: numbers of the episodes to use, or a mask of all episodes; None for all.
        rows: which rows to use: a condition on labels, fields, observed features and time, such as
            "goal == 'red' and t >= 5", or a bool array `[row]` or `[row, agent]`; None for all.
        given: what is taken as known already: labels, "action", observed features, or a list of these. The units then
            have to add to it: the score from what is given and the units together is compared with the score from what
            is given alone (conditional probing, Hewitt et al. 2021, arXiv:2109.09234).
        seed: of folds, permutations, control labels and the untrained network.
        memory_bytes: a site that needs more memory is streamed from the file in batches: ridge in one pass, with
            its strength from generalised cross-validation; logistic regression by averaged stochastic gradients.
        policies: by group, for external agents; the untrained control is then their network with shuffled weights.
        progress: show how many scores are done, or of a site that is streamed how many rows were read, if it takes
            more than two seconds.
    Raises:
        ConfigError: a number out of range.
        AnalysisError: unknown site, label or agent, or an empty list of them; too few episodes for the folds; a label
            that never varies; a constant site; a recording of several checkpoints with none chosen. With several sites,
            agents or offsets, problems that fail are skipped and listed in the result's warnings. Unknown names in
            `rows` or `given`, no rows that meet the condition, or `given` for a site that is streamed. Several time
            steps in `at`.
    """
    recording = opened_recording(recording)
    folds, n_shuffles = checked_number(folds, int, "folds", ge=2), checked_number(n_shuffles, int, "n_shuffles", ge=1)
    seed = checked_number(seed, int, "seed", ge=0)
    offsets = tuple(
        checked_number(each, int, "offset") for each in (offset if isinstance(offset, Iterable) else [offset])
    )
    if not offsets:
        raise AnalysisError("offset=[] chooses no offset: leave it out, or give steps")
    if not (at in ("all", "each") if isinstance(at, str) else isinstance(at, Real)):
        raise AnalysisError(f"expected at='all', at='each' or one time step; got at={at!r}")
    sites = match_recorded_sites(recording, site)
    groups = list(dict.fromkeys(group_of(name) for name in sites))
    sources = {group: RowSource(recording, group, policies) for group in groups}
    iteration = sources[groups[0]].resolve_checkpoint(checkpoint)
    all_rows = sources[groups[0]].rows(episodes, iteration)
    labels = {group: resolve_label(source, all_rows, label) for group, source in sources.items()}
    known = {group: given_columns(source, all_rows, given) for group, source in sources.items()}
    selected = {group: rows_where(source, all_rows, rows) for group, source in sources.items()}
    classes = {group: Classes.from_labels(of_group, kind) for group, of_group in labels.items()}
    agents = _match_agents(recording, sources, sites, agent)
    label_name = labels[groups[0]].name
    _check_one_kind(label_name, classes)
    diagnostics = Diagnostics(single_problem=len(sites) * len(agents) * len(offsets) == 1)
    diagnostics.messages.extend(duplicate_episode_warnings(recording, all_rows.episode))
    diagnostics.missing.notes.extend(each.note for each in classes.values() if each.note)
    shown = AnalysisProgress(f"decoding {label_name}", "scores", shown=progress)
    tasks = [
        SiteDecoding(
            sources[group],
            all_rows,
            name,
            labels[group],
            DecodingSettings(at, label_name, classes[group], folds, n_shuffles, seed),
            diagnostics,
            known[group],
            selected[group],
            shown,
        )
        for name, group in zip(sites, map(group_of, sites))
    ]
    outcomes: list[DecodingOutcome] = []
    with shown, threadpool_limits(1):  # many small fits: more threads wait for each other, 7 times slower on 2 cores
        for task in tasks:
            outcomes += task.run(agents, offsets, memory_bytes, progress)
    if not outcomes:
        raise AnalysisError("nothing could be decoded: " + "; ".join(diagnostics.warnings))
    names = dict.fromkeys(name for each in classes.values() for name in each.names)
    decoded = {name for outcome in outcomes for name in outcome.decoder.classes}
    result = Decoding(
        site=", ".join(sites),
        label=label_name,
        kind=classes[groups[0]].kind,
        classes=tuple(name for name in names if name in decoded),
        folds=folds,
        n_shuffles=n_shuffles,
        scores=tuple(outcome.score for outcome in outcomes),
        warnings=diagnostics.warnings,
        decoders=tuple(outcome.decoder for outcome in outcomes),
        shuffles=np.array([outcome.shuffled for outcome in outcomes]),
        checkpoint=iteration,
        notes=(*rows_note(rows_name(rows)), *diagnostics.notes),
        given=str(known[groups[0]] or ""),
    )
    return corrected_together([result])[0]


def _check_one_kind(label: str, classes: Mapping[str, Classes]) -> None:
    """Raises AnalysisError where the label is classes for some of the groups and a quantity for others."""
    if len({each.kind for each in classes.values()}) > 1:
        kinds = ", ".join(f"{each.kind} for {group}" for group, each in classes.items())
        raise AnalysisError(f"label {label!r} is decoded by {kinds}: choose kind=, or decode each group by itself")


def _check_offset(rows: Rows, offset: int) -> None:
    """Raises AnalysisError where no row has another one of its episode so many steps later."""
    if not (rows_later(rows, offset) >= 0).any():
        longest = max(int(np.ptp(rows.t[rows.episode == episode])) for episode in np.unique(rows.episode))
        raise AnalysisError(
            f"offset={offset} is outside every episode: their rows are at most {longest} steps apart; valid: "
            f"{-longest} to {longest}"
        )


@dataclass(frozen=True)
class SiteDecoding:
    """Decoding of one site: a problem for each agent and offset.

    Attributes:
        source: the recording, as the site's group sees it.
        rows: all rows of the chosen episodes.
        site: the site's name.
        labels: of the group's agents at these rows.
        settings: what all problems of the group share.
        diagnostics: collects warnings and notes.
        given: what is taken as known; None where nothing is.
        selected: `[row, agent of the group]` bool, the rows that meet the condition.
        progress: counts scores.
    """

    source: RowSource
    rows: Rows
    site: str
    labels: Labels
    settings: DecodingSettings
    diagnostics: Diagnostics
    given: GivenColumns | None
    selected: np.ndarray
    progress: AnalysisProgress

    @property
    def members(self) -> tuple[str, ...]:
        """The agents of the site's group."""
        return self.source.env.group(self.source.group).agents

    @property
    def needed_bytes(self) -> int:
        """Memory of the in-memory fits: trained and untrained activations of all agents, and copies of one agent's."""
        units = int(np.prod(self.source.recording[self.site].shape[1:]))
        features = self.source.env.group(self.source.group).observation.size * len(self.members)
        widest = max(units, features) // max(1, len(self.members))
        return len(self.rows) * (4 * (2 * units + features) + 8 * 4 * widest)

    def run(
        self, agents: Sequence[str], offsets: Sequence[int], memory_bytes: int, progress: bool
    ) -> Iterator[DecodingOutcome]:
        """The outcomes of those of the agents that are at the site; streamed if they need more than `memory_bytes`."""
        site_agents = [bearer for bearer in self.source.recording[self.site].labels["agent"] if bearer in agents]
        if self.needed_bytes > memory_bytes:
            return self.run_streaming(site_agents, offsets, progress)
        self.progress.expect(len(site_agents) * len(offsets) * self.settings.n_times(self.rows.t))
        return self.run_in_memory(site_agents, offsets)

    def run_in_memory(self, agents: Sequence[str], offsets: Sequence[int]) -> Iterator[DecodingOutcome]:
        source = self.source
        activations = source.activations(self.site, self.rows)
        policy, messages = untrained_policy(source, self.site, self.rows, self.settings.seed)
        untrained = None if policy is None else policy_activations(source, policy, self.site, self.rows)
        self.diagnostics.messages.extend(messages)
        observation = source.observations(source.group, self.rows)
        is_feed_forward = policy is not None and is_function_of_observation(policy, self.site)
        for rows, target in self._targets(agents, offsets):
            k = self.members.index(target.agent)
            problem = DecodingProblem(
                replace(target, is_feed_forward=is_feed_forward),
                activations[rows, k],
                observation[rows, k].reshape(len(rows), -1),
                None if untrained is None else untrained[rows, k],
                None if self.given is None else self.given.values[rows, k],
            )
            with self.diagnostics.skipping(self.site, target.agent, target.offset):
                check_activations(problem)
                for outcome in solve(problem, self.settings, self.diagnostics):
                    self.progress.add()
                    yield outcome

    def run_streaming(self, agents: Sequence[str], offsets: Sequence[int], progress: bool) -> Iterator[DecodingOutcome]:
        if self.given is not None:
            raise AnalysisError(
                f"{self.site} needs more than memory_bytes and is streamed, which given= does not support: use fewer "
                "episodes=, rows=, or a larger memory_bytes"
            )
        for rows, target in self._targets(agents, offsets):
            problem = self.source, self.rows, rows, target, self.settings, self.diagnostics
            with self.diagnostics.skipping(self.site, target.agent, target.offset):
                yield solve_streaming(*problem, progress=progress)

    def _targets(self, agents: Sequence[str], offsets: Sequence[int]) -> Iterator[tuple[np.ndarray, DecodingTarget]]:
        """Row indices and target of each problem whose label can be decoded."""
        classes, settings = self.settings.classes, self.settings
        chosen = self.source.acting(self.rows) & self.selected
        for agent in agents:
            k = self.members.index(agent)
            for offset in offsets:
                labels = self.labels.later(self.rows, offset)
                encoded = classes.encode(labels.values[:, k])
                usable = chosen[:, k] & labels.known[:, k]
                considered = chosen[:, k] & (rows_later(self.rows, offset) >= 0)
                name = f"{agent} at offset {offset}" if offset else agent
                self.diagnostics.missing.add(name, labels.name, considered, usable, labels.not_numbers[:, k])
                rows = np.flatnonzero(usable if self.given is None else usable & self.given.known[:, k])
                y, episode, t = encoded[rows], self.rows.episode[rows], self.rows.t[rows]
                with self.diagnostics.skipping(self.site, agent, offset):
                    _check_offset(self.rows, offset)
                    check_label(agent, y, episode, settings)
                    fold = episode_folds(y, episode, classes.kind, settings.folds, settings.seed)
                    yield rows, DecodingTarget(self.site, agent, offset, y, episode, t, fold)


def _match_agents(
    recording: Recording, sources: dict[str, RowSource], sites: Sequence[str], agent: str | Sequence[str] | None
) -> list[str]:
    """The requested agents; None: all agents of any of the sites."""
    at_sites = {name for site in sites for name in recording[site].labels["agent"]}
    valid = [name for source in sources.values() for name in source.agents if name in at_sites]
    return valid if agent is None else chosen_names(f"agent at {', '.join(sites)!r}", agent, valid)
