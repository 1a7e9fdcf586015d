"""dictionary: which features of an agent's last hidden layer the driven logits come through, and what they do together.

A dictionary's features add up to the activations, and behind the last hidden layer stands a linear head, so that a
feature's part of a logit is what the logit loses when the feature is zero. Its size is that part's covariance with the
logit: what a badly trained feature writes into units that were never on follows nothing that the agent chooses by.

`dictionary` tries what it supposes before it claims anything that hangs on it. Directions are claimed only where what
they stand for is rarely there and the choices come through them whole, and then of the fewest features that do; that
features are all that the choices need, and from when, only where edits along their span show it. What fails is not
claimed, and the finding says why. `dictionary_by_feature` tries nothing, and takes each feature as it was trained for a
direction of the network's own: a warning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from marlnb.analysis.dictionary import train_dictionary
from marlnb.analysis.dictionary_pruning import fewest_features
from marlnb.analysis.dictionary_result import RARE_KURTOSIS, Dictionary
from marlnb.errors import AnalysisError
from marlnb.groundtruth.case import Case, analysis
from marlnb.groundtruth.claims import Claim, Finding
from marlnb.models.directions import Direction
from marlnb.models.edit import Edit
from marlnb.models.edits import Ablate
from marlnb.models.edits_directions import Erase
from marlnb.recording.reader import Recording
from marlnb.recording.recorder import record
from marlnb.training.agents import Agents

EPISODES, SEED = 400, 77
N_FEATURES, L1, EPOCHS = 64, 0.3, 60
FEATURES_A_UNIT = 4
STARTS = 3
"""Dictionaries that are pruned, each from its own draw; the one of fewest features is taken."""
LEAST_EXPRESSED, LEAST_KEPT, MOST_LEFT = 0.95, 0.95, 0.05
"""Shares of the driven logits' variance: that the named features express; that their span alone keeps; that is left
without it."""
LEAST_READ, LEAST_SILENT, LEAST_STRENGTH, REST = 0.95, 0.05, 0.1, 1e-3
"""Shares: of a feature's direction, that choices read; of rows, at which a unit is silent; of the largest singular value
of what units move, below which nothing is read; and what counts as silence, in activations."""


@dataclass(frozen=True)
class _Used:
    """What one agent's choices come through.

    Attributes:
        parts: `[feature named, row, output]`, what the driven logits lose without each.
        values: `[row, feature named]`, in the site's units; directions: `[feature named, unit]`.
        expressed: share of the driven logits' variance that the named features express; rare: their mean excess
            kurtosis, by size.
        read: smallest share of a named feature's direction that steps along it could lose and move the choices the
            same, taken from 1; silent: smallest share of rows at which a unit that it is about is 0.
    """

    agent: str
    site: str
    group: str
    parts: np.ndarray
    values: np.ndarray
    directions: np.ndarray
    expressed: float
    rare: float
    read: float
    silent: float

    @property
    def doubts(self) -> list[str]:
        """Why single features are not to be taken for directions of the network's own."""
        found = []
        often = self.rare < RARE_KURTOSIS
        if often and self.read < LEAST_READ:
            found.append(
                f"{self.agent}: what the named features stand for is often there (excess kurtosis {self.rare:.1f}; "
                f"a Laplace distribution has {RARE_KURTOSIS:g}), and choices read only {self.read:.0%} of what one "
                f"of them writes: how much of the rest belongs to it the data do not decide"
            )
        elif often and self.silent < LEAST_SILENT:
            found.append(
                f"{self.agent}: what the named features stand for is often there, and a unit of theirs is silent at "
                f"{self.silent:.0%} of steps: what they add to is not known"
            )
        if self.expressed < LEAST_EXPRESSED:
            found.append(f"{self.agent}: the named features express {self.expressed:.0%} of what drives the choices")
        return found


@dataclass(frozen=True)
class _Looked:
    """An agent's features as they were trained, of all units; and the fewest that do, of all units where what they
    stand for is rare, else of those units that the choices are read from."""

    plain: _Used
    fewest: _Used

    @property
    def rare(self) -> bool:
        return not self.plain.doubts


_LAST: dict[tuple[str, str], list[_Looked]] = {}
"""The last one looked at, by its key's hash and its recording: training its dictionaries is what takes the time."""


@analysis("dictionary")
def features_used(case: Case) -> Finding:
    claims: list[Claim] = []
    doubts: list[str] = []
    abstains: set[str] = set()
    for looked in _used(case):
        used = looked.fewest
        claims += [*_moves(case, used), *_single(used), _span(used)]
        if looked.rare:
            claims.append(_onsets(case, used, used.parts.sum(0)))
            continue
        if used.doubts:
            doubts += used.doubts
            abstains.add("features")
        whole, alone, without = _by_edits(case, used)
        kept, left = _kept(whole, alone), _kept(whole, without)
        claims.append(_onsets(case, used, whole - without))
        if kept < LEAST_KEPT or left > MOST_LEFT:
            abstains |= {"span", "onset", "complete", "necessary"}
            doubts.append(
                f"{used.agent}: the features' span alone keeps {kept:.0%} of the choices; {left:.0%} go without"
            )
    attempts = ("agents", "features", "span", "moves", "onset")
    claims = [claim for claim in claims if claim.kind not in abstains]
    claims.append(Claim("agents", agents=tuple(looked.fewest.agent for looked in _used(case))))
    return case.finding("dictionary", attempts, claims, abstains=tuple(sorted(abstains)), doubts=tuple(doubts))


@analysis("dictionary_by_feature")
def features_taken_for_directions(case: Case) -> Finding:
    claims = [claim for looked in _used(case) for claim in _single(looked.plain)]
    return case.finding("dictionary_by_feature", ("features",), claims)


def _used(case: Case) -> list[_Looked]:
    """Of the agents that use any feature; both analyses of one recording of an instance look at the same ones."""
    asked = case.question.key_sha256, str(case.recording.path)
    if asked not in _LAST:
        _LAST.clear()
        _LAST[asked] = list(_look(case))
    return _LAST[asked]


def _look(case: Case) -> Iterator[_Looked]:
    with record(case.agents, episodes=EPISODES, seed=SEED, name="dictionary", exist="open", progress=False) as seen:
        found: list[tuple[str, str, Dictionary]] = []
        most = 0.0
        for group in case.question.groups:
            most = max(most, float(case.logits(group, case.moments(group), []).var(0).max()))
            for agent in case.members(group):
                try:
                    found.append((group, agent, _train(seen, case.hidden_sites(group)[-1], agent, 0)))
                except AnalysisError:  # the layer never varies
                    continue
        for group, agent, dictionary in found:
            slopes = case.slopes(group, dictionary.site)
            named = partial(_named, case, group, agent, most=most, slopes=slopes)
            plain = named(dictionary)
            if plain is None:
                continue
            if not plain.doubts:
                starts = [dictionary, *(_train(seen, plain.site, agent, seed) for seed in range(1, STARTS))]
            else:
                units = case.units_read(group, plain.site, slopes)[agent]
                starts = [_train(seen, plain.site, agent, seed, units) for seed in range(STARTS)]
            pruned = [fewest_features(one, seen, seed=k) for k, one in enumerate(starts)]
            fewest = named(min(pruned, key=lambda one: (len(one.warnings), one.n_features)))
            yield _Looked(plain, fewest or plain)


def _train(seen: Recording, site: str, agent: str, seed: int, units: tuple[int, ...] | None = None) -> Dictionary:
    """Of all units, or of some from their rest."""
    return train_dictionary(
        seen, site=site, agent=agent, units=units, from_rest=units is not None, kind="standard",
        n_features=N_FEATURES if units is None else FEATURES_A_UNIT * len(units), l1=L1, epochs=EPOCHS, seed=seed,
        progress=False,
    )  # fmt: skip


def _named(
    case: Case, group: str, agent: str, found: Dictionary, *, most: float, slopes: np.ndarray
) -> _Used | None:
    """The features whose part of a driven logit is worth naming, of the largest of any agent's; None: there is none."""
    k = case.members(group).index(agent)
    whole = case.logits(group, case.moments(group), [])[:, k]
    parts, centred = _parts(case, group, agent, found), whole - whole.mean(0)
    sizes = (np.einsum("fro,ro->fo", parts, centred) / len(centred)).max(1)
    named = np.flatnonzero(sizes >= case.question.smallest * most)
    if not len(named):
        return None
    directions, together = found.autoencoder.decoder.numpy()[named], parts[named].sum(0)
    _, strengths, reading = np.linalg.svd(slopes[k], full_matrices=False)
    reading = reading[strengths > LEAST_STRENGTH * strengths[0]]
    about = list(found.units or range(found.autoencoder.n_units))
    at_rest = np.isclose(case.recording[found.site].sel(agent=[agent]).to_numpy()[:, 0, about], 0.0, atol=REST)
    return _Used(
        agent=agent,
        site=found.site,
        group=group,
        parts=parts[named],
        values=found.features(case.recording)[:, 0, named] * float(found.autoencoder.scale),
        directions=directions,
        expressed=_kept(whole, together),
        rare=float(np.average(found.kurtosis[named], weights=sizes[named])),
        read=float(np.square(directions @ reading.T).sum(1).min()),
        silent=float(at_rest.mean(0).min()),
    )


def _kept(whole: np.ndarray, part: np.ndarray) -> float:
    """Share of the variance of logits `[row, output]` that a part of them has."""
    centred = whole - whole.mean(0)
    return float(1 - np.square(centred - (part - part.mean(0))).sum() / np.square(centred).sum())


def _parts(case: Case, group: str, agent: str, found: Dictionary) -> np.ndarray:
    """`[feature, row, output]`: what an agent's driven logits lose without each feature."""
    agents, k = case.agents, case.members(group).index(agent)
    with_features = {**case.policies, group: found.attach(case.policies[group])}
    opened = replace(case, agents=Agents(with_features, agents.env, agents.path, networks=agents.networks))
    moments = case.moments(group)
    whole = opened.logits(group, moments, [])[:, k]
    site = f"{found.site}_features"
    parts = np.zeros((found.n_features, *whole.shape))
    for feature in np.flatnonzero(found.density):
        without: list[Edit] = [Ablate(site, units=(int(feature),), agents=(agent,))]
        parts[feature] = whole - opened.logits(group, moments, without)[:, k]
    return parts


def _by_edits(case: Case, used: _Used) -> list[np.ndarray]:
    """The driven logits `[row, output]` as they are, with all but the features' span at its mean, and with the span at
    its mean."""
    k, moments = case.members(used.group).index(used.agent), case.moments(used.group)
    mean = case.recording[used.site].sel(agent=[used.agent]).to_numpy()[:, 0].mean(0)
    basis, sizes, _ = np.linalg.svd(used.directions.T)
    rank = int((sizes > 1e-6 * sizes[0]).sum())
    found = [case.logits(used.group, moments, [])[:, k]]
    for rows in (basis.T[rank:], basis.T[:rank]):
        gone = tuple(Direction(used.site, used.agent, tuple(map(float, r)), float(mean @ r), 1.0) for r in rows)
        edits: list[Edit] = [Erase(used.site, directions=gone, agents=(used.agent,))] if gone else []
        found.append(case.logits(used.group, moments, edits)[:, k])
    return found


def _single(used: _Used) -> list[Claim]:
    return [Claim("features", agent=used.agent, site=used.site, basis=(row,)) for row in _rows(used)]


def _span(used: _Used) -> Claim:
    return Claim("span", agent=used.agent, site=used.site, basis=_rows(used))


def _rows(used: _Used) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(map(float, row)) for row in used.directions)


def _moves(case: Case, used: _Used) -> list[Claim]:
    """By feature, the output that it moves most, and by how much for a step along its direction."""
    claims = []
    for row, value, parts in zip(_rows(used), used.values.T, used.parts):
        slopes = value @ parts / float(value @ value)
        most = int(np.abs(slopes).argmax())
        output, step = case.outputs[used.group][most], float(slopes[most])
        claims.append(Claim("moves", agent=used.agent, site=used.site, direction=row, output=output, value=step))
    return claims


def _onsets(case: Case, used: _Used, part: np.ndarray) -> Claim:
    """By episode, the step at which the features' part `[row, output]` of the choices changes most."""
    rows = case.recording.rows[["episode", "t"]].copy()
    rows["jump"] = np.linalg.norm(np.diff(part, axis=0, prepend=0.0), axis=1)
    later = rows[rows["t"] > 0]
    most = later.loc[later.groupby("episode")["jump"].idxmax()]
    return Claim(
        "onset", agent=used.agent, site=used.site, steps=tuple(zip(map(int, most["episode"]), map(int, most["t"])))
    )
