"""dictionary: which features of the units that choices are read from carry the choices, and what they do together.

Steering each unit tells which the driven logits are read from; what the others hold moves nothing, and a dictionary of
them all spends its features on it. So the dictionary is of those units, from their rest where they are silent at times,
with the fewest features that do.

It tries what it supposes before it claims what hangs on it. A feature writes more than the choices read of it, unless
all of what it writes is read: how much of the rest belongs to it is decided by the data where what it stands for is
rare, and by nothing else. Single features are claimed only where one of the two holds. That their span is all that the
choices need, and from when, is claimed only where edits along it show it. What fails is declined, and the finding says
why.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from marlnb.analysis.dictionaries.dictionary import RARE_KURTOSIS, Dictionary
from marlnb.analysis.dictionaries.pruning import prune_dictionary
from marlnb.groundtruth.instance import Instance, analysis
from marlnb.groundtruth.scoring.circuit_claims import AgentsClaim, OnsetClaim
from marlnb.groundtruth.scoring.claims import Claim
from marlnb.groundtruth.scoring.feature_claims import FeatureClaim, FeatureEffectClaim, SpanClaim
from marlnb.groundtruth.scoring.feature_parts import (
    EPISODES,
    SEED,
    driven_logits,
    largest_variance,
    parts,
    share_kept,
    train,
)
from marlnb.groundtruth.scoring.finding import Finding
from marlnb.models.hooks.directions import Direction, Erase
from marlnb.models.hooks.edit import Edit
from marlnb.recording.capture.recorder import record

MAX_FEATURES, FEATURES_PER_UNIT = 64, 4
N_STARTS = 3
"""Number of dictionaries that are pruned, each from its own random start; the smallest is used."""
MISSED = (0.2, 0.05, 0.01)
"""Shares of a feature's contribution that may be lost without it; a smaller one is tried if choices lose more."""
MIN_EXPRESSED, MIN_KEPT, MAX_REMAINING = 0.95, 0.95, 0.05
"""Shares of the driven logits' variance: expressed by the named features, kept by their span alone, left without it."""
MIN_READ, MIN_STRENGTH = 0.95, 0.1
"""Shares: of a feature's direction that choices read; of the largest singular value of the slopes, below which nothing
is read."""
MIN_SILENT, REST = 0.05, 1e-3
"""Share of rows at which a unit is at rest, and the tolerance of rest, in activations."""


@dataclass(frozen=True)
class _Used:
    """The features that drive one agent's choices.

    Attributes:
        agent: agent name.
        site: site name.
        group: group name.
        parts: `[named feature, row, output]`, the change of the driven logits without each.
        values: `[row, named feature]`, in the site's units.
        directions: `[named feature, unit]`.
        expressed: share of the driven logits' variance that the named features express.
        kurtosis: their mean excess kurtosis, weighted by the variance of their parts.
        read: smallest share of a named feature's direction that choices read.
        from_rest: whether features add to silent units.
    """

    agent: str
    site: str
    group: str
    parts: np.ndarray
    values: np.ndarray
    directions: np.ndarray
    expressed: float
    kurtosis: float
    read: float
    from_rest: bool

    @property
    def rare(self) -> bool:
        """Whether the features are as rarely active as a Laplace distribution."""
        return self.kurtosis >= RARE_KURTOSIS

    @property
    def doubts(self) -> list[str]:
        """Reasons why single features may not be directions of the network."""
        reasons = []
        often = f"{self.agent}: what the features stand for is often there (excess kurtosis {self.kurtosis:.1f}; a "
        often += f"Laplace distribution has {RARE_KURTOSIS:g})"
        if not self.rare and self.read < MIN_READ:
            reasons.append(
                f"{often}, and choices read {self.read:.0%} of what one of them writes: how much of the rest belongs "
                f"to it the data do not decide"
            )
        if not self.rare and not self.from_rest:
            reasons.append(f"{often}, and units that are never silent do not tell what features add to")
        if self.expressed < MIN_EXPRESSED:
            reasons.append(f"{self.agent}: the features express {self.expressed:.0%} of what drives the choices")
        return reasons


@analysis("dictionary")
def features_used(instance: Instance) -> Finding:
    claims: list[Claim] = []
    doubts: list[str] = []
    abstains: set[str] = set()
    agents: list[str] = []
    for used in _look(instance):
        agents.append(used.agent)
        claims += [*_moves(instance, used), *_single(used), _span(used)]
        if used.doubts:
            doubts += used.doubts
            abstains.add("features")
        elif used.rare:  # rare features may overlap, and a projection along one takes some of the others
            claims.append(_onsets(instance, used, used.parts.sum(0)))
            continue
        whole, alone, without = _by_edits(instance, used)
        kept, left = share_kept(whole, alone), share_kept(whole, without)
        claims.append(_onsets(instance, used, whole - without))
        if kept < MIN_KEPT or left > MAX_REMAINING:
            abstains |= {"span", "onset", "complete", "necessary"}
            doubts.append(
                f"{used.agent}: the features' span alone keeps {kept:.0%} of the choices; {left:.0%} go without"
            )
    claims = [claim for claim in claims if claim.kind not in abstains]
    claims.append(AgentsClaim(agents=tuple(agents)))
    attempts = ("agents", "features", "span", "feature_effect", "onset")
    return instance.finding("dictionary", attempts, claims, abstains=tuple(sorted(abstains)), doubts=tuple(doubts))


def _look(instance: Instance) -> Iterator[_Used]:
    """The agents with units that choices are read from, and features of those."""
    least = (instance.task.min_effect_share * largest_variance(instance) ** 0.5) ** 2
    with record(instance.agents, episodes=EPISODES, seed=SEED, name="dictionary", exist="open", progress=False) as seen:
        for group in instance.task.groups:
            site = instance.hidden_sites(group)[-1]
            slopes = instance.slopes(group, site)
            for agent, units in instance.units_read(group, site, slopes).items():
                if not units:
                    continue
                values = instance.recording[site].sel(agent=[agent]).to_numpy()[:, 0, list(units)]
                silent = np.isclose(values, 0.0, atol=REST).mean(0).min()
                n_features, rests = min(MAX_FEATURES, FEATURES_PER_UNIT * len(units)), bool(silent >= MIN_SILENT)
                begin = partial(train, seen, site, agent, n_features=n_features, units=units, from_rest=rests)
                starts = [begin(seed=seed) for seed in range(N_STARTS)]
                used = None
                for missed in MISSED:
                    pruned = [
                        prune_dictionary(one, seen, max_loss=missed, seed=seed) for seed, one in enumerate(starts)
                    ]
                    smallest = min(pruned, key=lambda one: (len(one.warnings), one.n_features))
                    used = _named(instance, group, agent, smallest, slopes[instance.members(group).index(agent)], least)
                    if used is None or used.expressed >= MIN_EXPRESSED:
                        break
                if used is not None:
                    yield used


def _named(
    instance: Instance, group: str, agent: str, dictionary: Dictionary, slopes: np.ndarray, least: float
) -> _Used | None:
    """The features whose part of a driven logit has at least that variance; None: there is none.

    Args:
        slopes: `[output, unit]`, of the agent.
    """
    lost, whole = parts(instance, group, agent, dictionary), driven_logits(instance, group, agent)
    sizes = lost.var(1).max(1)
    named = np.flatnonzero(sizes >= least)
    if not len(named):
        return None
    directions = dictionary.autoencoder.decoder.numpy()[named]
    _, strengths, reading = np.linalg.svd(slopes, full_matrices=False)
    reading = reading[strengths > MIN_STRENGTH * strengths[0]]
    return _Used(
        agent=agent,
        site=dictionary.site,
        group=group,
        parts=lost[named],
        values=dictionary.features(instance.recording)[:, 0, named] * float(dictionary.autoencoder.scale),
        directions=directions,
        expressed=share_kept(whole, lost[named].sum(0)),
        kurtosis=float(np.average(dictionary.kurtosis[named], weights=sizes[named])),
        read=float(np.square(directions @ reading.T).sum(1).min()),
        from_rest=dictionary.from_rest,
    )


def _by_edits(instance: Instance, used: _Used) -> list[np.ndarray]:
    """The driven logits `[row, output]` as they are, with all but the features' span at its mean, and with the span at
    its mean."""
    k, batch = instance.members(used.group).index(used.agent), instance.batch(used.group)
    mean = instance.recording[used.site].sel(agent=[used.agent]).to_numpy()[:, 0].mean(0)
    basis, sizes, _ = np.linalg.svd(used.directions.T)
    rank = int((sizes > 1e-6 * sizes[0]).sum())
    logits = [instance.logits(used.group, batch, [])[:, k]]
    for rows in (basis.T[rank:], basis.T[:rank]):
        gone = tuple(Direction(used.site, used.agent, tuple(map(float, r)), float(mean @ r), 1.0) for r in rows)
        edits: list[Edit] = [Erase(used.site, directions=gone, agents=(used.agent,))] if gone else []
        logits.append(instance.logits(used.group, batch, edits)[:, k])
    return logits


def _single(used: _Used) -> list[Claim]:
    return [FeatureClaim(agent=used.agent, site=used.site, basis=(row,)) for row in _rows(used)]


def _span(used: _Used) -> Claim:
    return SpanClaim(agent=used.agent, site=used.site, basis=_rows(used))


def _rows(used: _Used) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(map(float, row)) for row in used.directions)


def _moves(instance: Instance, used: _Used) -> list[Claim]:
    """By feature, the output that it moves most, and by how much for a step along its direction."""
    claims: list[Claim] = []
    for row, value, part in zip(_rows(used), used.values.T, used.parts):
        slopes = value @ part / float(value @ value)
        most = int(np.abs(slopes).argmax())
        output, step = instance.outputs[used.group][most], float(slopes[most])
        claims.append(FeatureEffectClaim(agent=used.agent, site=used.site, direction=row, output=output, value=step))
    return claims


def _onsets(instance: Instance, used: _Used, part: np.ndarray) -> Claim:
    """By episode, the step at which the features' part `[row, output]` of the choices changes most."""
    rows = instance.recording.rows[["episode", "t"]].copy()
    rows["jump"] = np.linalg.norm(np.diff(part, axis=0, prepend=0.0), axis=1)
    later = rows[rows["t"] > 0]
    most = later.loc[later.groupby("episode")["jump"].idxmax()]
    return OnsetClaim(
        agent=used.agent, site=used.site, steps=tuple(zip(map(int, most["episode"]), map(int, most["t"])))
    )
