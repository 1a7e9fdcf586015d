"""dictionary: which features of an agent's last hidden layer the driven logits come through, and what they do together.

A dictionary's features add up to the activations, and behind the last hidden layer stands a linear head, so that a
feature's part of a logit is what the logit loses when the feature is zero. Its size is that part's covariance with the
logit and its variance, their geometric mean: what a badly trained feature writes into units that were never on follows
nothing that the agent chooses by, and what only goes along with a used concept moves little by itself.

`dictionary` claims what these features do together and what each does to a logit; `dictionary_by_feature` takes each
for a direction of the network's own, which it is where concepts are rare and directions (`sparse_code`), and else not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from marlnb.analysis.dictionary import train_dictionary
from marlnb.analysis.dictionary_result import Dictionary
from marlnb.errors import AnalysisError
from marlnb.groundtruth.case import Case, analysis
from marlnb.groundtruth.claims import Claim, Finding
from marlnb.models.edit import Edit
from marlnb.models.edits import Ablate
from marlnb.recording.recorder import record
from marlnb.training.agents import Agents

EPISODES, SEED = 400, 77
N_FEATURES, L1, EPOCHS = 64, 0.3, 60


@dataclass(frozen=True)
class _Used:
    """What one agent's choices come through.

    Attributes:
        parts: `[feature named, row, output]`, what the driven logits lose without each.
        values: `[row, feature named]`, in the site's units; directions: `[feature named, unit]`.
    """

    agent: str
    site: str
    group: str
    parts: np.ndarray
    values: np.ndarray
    directions: np.ndarray


_LAST: dict[tuple[str, str], list[_Used]] = {}
"""The last one looked at, by its key's hash and its recording: training its dictionaries is what takes the time."""


@analysis("dictionary")
def features_used(case: Case) -> Finding:
    claims: list[Claim] = []
    agents: list[str] = []
    for used in _used(case):
        agents.append(used.agent)
        rows = tuple(tuple(map(float, row)) for row in used.directions)
        claims += _single(used)
        claims.append(Claim("span", agent=used.agent, site=used.site, basis=rows))
        claims.append(Claim("onset", agent=used.agent, site=used.site, steps=_onsets(case, used)))
        for number, row in enumerate(rows):
            output, value = _moves(used, number, case.outputs[used.group])
            claims.append(Claim("moves", agent=used.agent, site=used.site, direction=row, output=output, value=value))
    attempts = ("agents", "span", "moves", "onset")
    return case.finding("dictionary", attempts, [*claims, Claim("agents", agents=tuple(agents))])


@analysis("dictionary_by_feature")
def features_taken_for_directions(case: Case) -> Finding:
    claims = [claim for used in _used(case) for claim in _single(used)]
    return case.finding("dictionary_by_feature", ("features",), claims)


def _single(used: _Used) -> list[Claim]:
    return [
        Claim("features", agent=used.agent, site=used.site, basis=(tuple(map(float, row)),)) for row in used.directions
    ]


def _used(case: Case) -> list[_Used]:
    """Of the agents that use any feature; both analyses of one recording of an instance look at the same ones."""
    asked = case.question.key_sha256, str(case.recording.path)
    if asked not in _LAST:
        _LAST.clear()
        _LAST[asked] = list(_look(case))
    return _LAST[asked]


def _look(case: Case) -> Iterator[_Used]:
    looked: list[tuple[str, str, str, Dictionary, np.ndarray, np.ndarray]] = []
    most = 0.0
    with record(case.agents, episodes=EPISODES, seed=SEED, name="dictionary", exist="open", progress=False) as seen:
        for group in case.question.groups:
            site, moments = case.hidden_sites(group)[-1], case.moments(group)
            whole = case.logits(group, moments, [])
            most = max(most, float(whole.var(0).max()))
            for k, agent in enumerate(case.members(group)):
                try:
                    one = train_dictionary(
                        seen, site=site, agent=agent, kind="standard", n_features=N_FEATURES, l1=L1, epochs=EPOCHS,
                        progress=False,
                    )  # fmt: skip
                except AnalysisError:  # the layer never varies
                    continue
                parts = _parts(case, group, k, one)
                centred = whole[:, k] - whole[:, k].mean(0)
                follows = np.einsum("fro,ro->fo", parts, centred) / len(centred)
                sizes = np.sqrt(follows.clip(min=0) * parts.var(1)).max(1)
                looked.append((agent, site, group, one, parts, sizes))
        for agent, site, group, one, parts, sizes in looked:
            named = np.flatnonzero(sizes >= case.question.smallest * most)
            if len(named):
                values = one.features(case.recording)[:, 0, named] * float(one.autoencoder.scale)
                directions = one.autoencoder.decoder.numpy()[named]
                yield _Used(agent, site, group, parts[named], values, directions)


def _parts(case: Case, group: str, k: int, found: Dictionary) -> np.ndarray:
    """`[feature, row, output]`: what an agent's driven logits lose without each feature."""
    agents = case.agents
    with_features = {**case.policies, group: found.attach(case.policies[group])}
    opened = replace(case, agents=Agents(with_features, agents.env, agents.path, networks=agents.networks))
    moments, agent = case.moments(group), case.members(group)[k]
    whole = opened.logits(group, moments, [])[:, k]
    site = f"{found.site}_features"
    parts = np.zeros((found.n_features, *whole.shape))
    for feature in np.flatnonzero(found.density):
        without: list[Edit] = [Ablate(site, units=(int(feature),), agents=(agent,))]
        parts[feature] = whole - opened.logits(group, moments, without)[:, k]
    return parts


def _moves(used: _Used, number: int, outputs: list[int]) -> tuple[int, float]:
    """The output that a feature moves most, and by how much for a step along its direction."""
    value = used.values[:, number]
    slopes = value @ used.parts[number] / float(value @ value)
    most = int(np.abs(slopes).argmax())
    return outputs[most], float(slopes[most])


def _onsets(case: Case, used: _Used) -> tuple[tuple[int, int], ...]:
    """By episode, the step at which what the features do to the choices changes most."""
    rows = case.recording.rows[["episode", "t"]].copy()
    rows["jump"] = np.linalg.norm(np.diff(used.parts.sum(0), axis=0, prepend=0.0), axis=1)
    later = rows[rows["t"] > 0]
    most = later.loc[later.groupby("episode")["jump"].idxmax()]
    return tuple(zip(map(int, most["episode"]), map(int, most["t"])))
