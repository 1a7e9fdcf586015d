"""EpisodeView: everything that a recording holds of one episode, as arrays; reads only that episode's rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.special import log_softmax

from marlnb.analysis.attribution.feature_groups import feature_names
from marlnb.errors import RecordingError
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.recorded_policies import check_origin, origin_at, origin_of
from marlnb.specs import ActionSpec, GroupSpec
from marlnb.training.policies.policy_source import PolicySource
from marlnb.training.runs.run import Origin

ChoiceKind = Literal["probability", "score", "value", "none"]
TOLERANCE = 1e-3  # between recorded log-probabilities and those of the recorded logits


@dataclass(frozen=True, eq=False)
class GroupView:
    """Observations, actions, rewards and values of one group's recorded agents. Axes are `[time, agent, ...]`.

    Attributes:
        name: of the group.
        agents: that were recorded.
        spec: of the group.
        features: names of the features of `observation`.
        observation: flattened, `[time, agent, feature]` float32.
        action: as recorded.
        choices: `[time, agent, choice]` float32, what is drawn of the alternatives of an action.
        kind: of `choices`: "probability"; "score" (logits that are not probabilities, such as Q-values); "value" (the
            components of a continuous action); "none".
        reward: `[time, agent]`.
        value: `[time, agent]`, the critic's estimate; None if it was not recorded.
        acting: `[time, agent]`, whether the agent acts.
    """

    name: str
    agents: tuple[str, ...]
    spec: GroupSpec
    features: tuple[str, ...]
    observation: np.ndarray
    action: np.ndarray
    choices: np.ndarray
    kind: ChoiceKind
    reward: np.ndarray
    value: np.ndarray | None
    acting: np.ndarray


@dataclass(frozen=True, eq=False)
class LabelView:
    """A label over the episode: values `[time]`, or `[time, agent]` of `agents`."""

    name: str
    values: np.ndarray
    agents: tuple[str, ...]
    classes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class EpisodeView:
    """One episode of a recording.

    Attributes:
        recording: that holds it.
        episode: its number.
        seed: of the environment.
        checkpoint: iteration of the checkpoint that played its first step.
        rows: `[time]`, indices of its steps in the file.
        t: `[time]`, steps since it began.
        returns: by recorded agent.
        groups: with recorded agents.
        labels: that were recorded.
    """

    recording: Recording
    episode: int
    seed: int
    checkpoint: int
    rows: np.ndarray
    t: np.ndarray
    returns: dict[str, float]
    groups: tuple[GroupView, ...]
    labels: tuple[LabelView, ...]
    _units: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(agent for group in self.groups for agent in group.agents)

    @property
    def checkpoint_of_several(self) -> int | None:
        """The checkpoint that played it if the recording holds several, whose units differ; else None, as analyses take
        it.

        Raises:
            RecordingError: as `origin`.
        """
        return self.origin.iteration if self.recording.checkpoints["iteration"].nunique() > 1 else None

    @property
    def sites(self) -> list[str]:
        return self.recording.sites

    @property
    def layers(self) -> list[str]:
        """Names of sites without the group, such as `actor/hidden_1`."""
        return list(dict.fromkeys(site.split("/", 1)[1] for site in self.sites))

    @property
    def origin(self) -> Origin:
        """The checkpoint that played it.

        Raises:
            RecordingError: several did, as in a flight recording.
        """
        return origin_of(self.recording, self.episode)

    def check_source(self, source: PolicySource) -> None:
        """Raises RecordingError where a source has other weights than those that played the episode, or several did."""
        check_origin(self.recording, source, self.origin)

    def group_of(self, agent: str) -> GroupView:
        for group in self.groups:
            if agent in group.agents:
                return group
        raise RecordingError(f"{self.recording.path.name} has no agent {agent!r}; it has {', '.join(self.agents)}")

    def site_of(self, agent: str, layer: str) -> str | None:
        """The agent's site of this layer; None if it has none."""
        site = f"{self.group_of(agent).name}/{layer}"
        return site if site in self.sites and agent in self.recording[site].labels["agent"] else None

    def units(self, site: str) -> np.ndarray:
        """`[time, agent of the site, unit]` float32, read once."""
        if site not in self._units:
            self._units[site] = self.recording[site].sel(episode=self.episode).to_numpy()
        return self._units[site]

    def units_of(self, agent: str, site: str) -> np.ndarray:
        """`[time, unit]` of one agent."""
        return self.units(site)[:, list(self.recording[site].labels["agent"]).index(agent)]

    def checkpoint_at(self, t: int) -> int:
        """The iteration of the checkpoint that played step `t`."""
        return origin_at(self.recording, int(self.rows[self.index(t)])).iteration

    def index(self, t: int) -> int:
        """The index of step `t`, or of the last recorded step before it."""
        return max(0, int(np.searchsorted(self.t, t, side="right")) - 1)


def read_episode(recording: Recording, episode: int = 0) -> EpisodeView:
    """Reads one episode. Units are read later, site by site.

    Raises:
        RecordingError: there is no such episode.
    """
    table = recording.episodes
    if episode not in table.index:
        valid = f"{table.index.min()} to {table.index.max()}" if len(table) else "none"
        raise RecordingError(f"{recording.path.name} has no episode {episode}; valid: {valid}")
    entry: Any = table.loc[episode]
    start = int(entry["start"])
    rows = np.arange(start, start + int(entry["length"]))
    return EpisodeView(
        recording=recording,
        episode=episode,
        seed=int(entry["seed"]),
        checkpoint=origin_at(recording, start).iteration,
        rows=rows,
        t=np.asarray(recording.file["steps/t"][start : start + len(rows)]),
        returns={agent: float(entry[agent]) for agent in recording.agents},
        groups=tuple(_group(recording, name, episode) for name in recording.groups),
        labels=tuple(_label(recording, name, episode) for name in recording.labels),
    )


def choice_names(action: ActionSpec) -> tuple[str, ...]:
    """The names of the alternatives of an action, or of the components of a continuous action."""
    if action.kind == "continuous":
        return action.names or tuple(f"component {k}" for k in range(action.n_components))
    if len(action.names) == action.n_logits:
        return action.names
    if action.kind == "discrete":
        return tuple(f"action {k}" for k in range(action.n_logits))
    return tuple(f"{part}: {k}" for part, n in enumerate(action.n) for k in range(n))


def _group(recording: Recording, name: str, episode: int) -> GroupView:
    spec, fields = recording.spec.group(name), recording.fields(name)

    def read(field_name: str) -> np.ndarray:
        return recording.steps(name, field_name).sel(episode=episode).to_numpy()

    observation = read("observation")
    observation = observation.reshape(*observation.shape[:2], -1).astype(np.float32)
    action = read("action")
    optional = {field: read(field) for field in ("logits", "log_prob", "action_mask") if field in fields}
    choices, kind = _choices(spec.action, action, **optional)
    return GroupView(
        name=name,
        agents=tuple(recording.group_agents(name)),
        spec=spec,
        features=feature_names(spec),
        observation=observation,
        action=action,
        choices=choices,
        kind=kind,
        reward=read("reward").astype(np.float32),
        value=read("value").astype(np.float32) if "value" in fields else None,
        acting=read("acting").astype(bool),
    )


def _choices(
    spec: ActionSpec, action: np.ndarray, *, logits: np.ndarray | None = None, log_prob: np.ndarray | None = None,
    action_mask: np.ndarray | None = None,
) -> tuple[np.ndarray, ChoiceKind]:  # fmt: skip
    """What is drawn of an action. Logits are probabilities only if the recorded log-probabilities agree with them."""
    if spec.kind == "continuous":
        return action.astype(np.float32), "value"
    if logits is None or logits.shape[-1] != spec.n_logits:
        return np.zeros((*action.shape[:2], 0), np.float32), "none"
    allowed = np.ones(logits.shape, bool) if action_mask is None else action_mask.reshape(logits.shape).astype(bool)
    allowed_logits = np.where(allowed, logits.astype(np.float64), -np.inf)
    components = np.split(allowed_logits, np.cumsum(spec.n)[:-1], axis=-1)
    logs = np.concatenate([log_softmax(component, axis=-1) for component in components], axis=-1)
    taken = action[..., None] if spec.kind == "discrete" else action
    indices = taken + np.concatenate([[0], np.cumsum(spec.n)[:-1]])
    expected = np.take_along_axis(logs, indices, axis=-1).sum(-1)
    if log_prob is not None and np.allclose(expected, log_prob.reshape(expected.shape), atol=TOLERANCE, equal_nan=True):
        return np.exp(logs).astype(np.float32), "probability"
    return logits.astype(np.float32), "score"


def _label(recording: Recording, name: str, episode: int) -> LabelView:
    array = recording.label(name)
    values = array.sel(episode=episode).to_numpy()
    agents = tuple(array.labels.get("agent", ())) if values.ndim > 1 else ()
    return LabelView(name, values, agents, tuple(recording.classes(name)))
