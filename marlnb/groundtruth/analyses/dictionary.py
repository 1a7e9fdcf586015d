"""dictionary: which features drive the choices, and what they do together.

Steering first selects the units that the driven logits depend on. The dictionary is trained on these units alone, since
other units would use up its features. If the units are silent at times, features add to the silent state. The
dictionary is pruned as long as the choices are preserved.

Claims follow only from assumptions that were checked. A feature may write more than the choices read. The data decide
how much of the rest belongs to it only if its concept is rare. So single features are claimed only if their concepts
are rare, or if the choices read all that they write. Claims about their span, and its onset, need edits along the span
to confirm them. Otherwise the finding abstains and states why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from marlnb.analysis.dictionaries.dictionary import RARE_KURTOSIS, Dictionary
from marlnb.analysis.dictionaries.pruning import prune_dictionary
from marlnb.groundtruth.answer_key import as_tuples
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
"""Number of dictionaries, each trained from a different seed and pruned. The smallest is used."""
MAX_LOSSES = (0.2, 0.05, 0.01)
"""Maximal losses of pruning, in order. A smaller one is tried if the features express too little of the choices."""
MIN_EXPRESSED, MIN_KEPT, MAX_REMAINING = 0.95, 0.95, 0.05
"""Shares of the driven logits' variance: expressed by the selected features, kept by their span, left without it."""
MIN_READ, MIN_STRENGTH = 0.95, 0.1
"""Minimal share of a feature's direction that choices read; minimal singular value of the slopes, relative to the
largest."""
MIN_SILENT, SILENCE_TOLERANCE = 0.05, 1e-3
"""Minimal share of rows at which a unit is silent; tolerance of silence, in activations."""


@dataclass(frozen=True)
class UsedFeatures:
    """The features that drive one agent's choices.

    Attributes:
        agent: agent name.
        site: site name.
        group: group name.
        logit_parts: `[feature, row, output]`, change of the driven logits by removing each feature.
        values: `[row, feature]`, in the site's units.
        directions: `[feature, unit]`.
        expressed_share: share of the driven logits' variance that the features express.
        kurtosis: mean excess kurtosis of the features, weighted by the variance of their parts.
        min_read_share: smallest share of a feature's direction that choices read.
        from_rest: whether features add to silent units.
    """

    agent: str
    site: str
    group: str
    logit_parts: np.ndarray
    values: np.ndarray
    directions: np.ndarray
    expressed_share: float
    kurtosis: float
    min_read_share: float
    from_rest: bool

    @property
    def is_rare(self) -> bool:
        """Whether the features' excess kurtosis is at least a Laplace distribution's."""
        return self.kurtosis >= RARE_KURTOSIS

    @property
    def rows(self) -> tuple[tuple[float, ...], ...]:
        """The directions, as claims hold them."""
        return as_tuples(self.directions.tolist())  # type: ignore[no-any-return]

    @property
    def doubts(self) -> list[str]:
        """Reasons why single features may not be directions of the network."""
        reasons = []
        not_rare = (
            f"{self.agent}: the features' concepts are often there (excess kurtosis {self.kurtosis:.1f}; a Laplace "
            f"distribution has {RARE_KURTOSIS:g})"
        )
        if not self.is_rare and self.min_read_share < MIN_READ:
            reasons.append(
                f"{not_rare}, and choices read only {self.min_read_share:.0%} of one feature's direction: the data do "
                f"not decide how much of the rest belongs to the feature"
            )
        if not self.is_rare and not self.from_rest:
            reasons.append(f"{not_rare}, and the units are never silent: the baseline of the features is unknown")
        if self.expressed_share < MIN_EXPRESSED:
            reasons.append(
                f"{self.agent}: the features express only {self.expressed_share:.0%} of the driven logits' variance"
            )
        return reasons


@analysis("dictionary")
def features_used(instance: Instance) -> Finding:
    claims: list[Claim] = []
    doubts: list[str] = []
    abstains: set[str] = set()
    agents: list[str] = []
    for used in _used_features(instance):
        agents.append(used.agent)
        claims += _effect_claims(instance, used)
        claims += [FeatureClaim(agent=used.agent, site=used.site, basis=(row,)) for row in used.rows]
        claims.append(SpanClaim(agent=used.agent, site=used.site, basis=used.rows))
        if used.doubts:
            doubts += used.doubts
            abstains.add("features")
        elif used.is_rare:  # rare features may overlap, so a projection along one removes parts of others
            claims.append(_onset_claim(instance, used, used.logit_parts.sum(0)))
            continue
        whole, alone, without = _by_edits(instance, used)
        kept, left = share_kept(whole, alone), share_kept(whole, without)
        claims.append(_onset_claim(instance, used, whole - without))
        if kept < MIN_KEPT or left > MAX_REMAINING:
            abstains |= {"span", "onset", "complete", "necessary"}
            doubts.append(
                f"{used.agent}: the features' span keeps {kept:.0%} of the choices; {left:.0%} remain without it"
            )
    claims = [claim for claim in claims if claim.kind not in abstains]
    claims.append(AgentsClaim(agents=tuple(agents)))
    attempts = ("agents", "features", "span", "feature_effect", "onset")
    return instance.finding("dictionary", attempts, claims, abstains=tuple(sorted(abstains)), doubts=tuple(doubts))


def _used_features(instance: Instance) -> Iterator[UsedFeatures]:
    """The agents whose choices depend on some units, with the features of these units."""
    min_variance = (instance.task.min_effect_share * largest_variance(instance) ** 0.5) ** 2
    with record(instance.agents, episodes=EPISODES, seed=SEED, name="dictionary", exist="open", progress=False) as data:
        for group in instance.task.groups:
            site = instance.hidden_sites(group)[-1]
            slopes = instance.slopes(group, site)
            for agent, units in instance.units_read(group, site, slopes).items():
                if not units:
                    continue
                values = instance.recording[site].sel(agent=[agent]).to_numpy()[:, 0, list(units)]
                silent = np.isclose(values, 0.0, atol=SILENCE_TOLERANCE).mean(0).min()
                n_features, from_rest = min(MAX_FEATURES, FEATURES_PER_UNIT * len(units)), bool(silent >= MIN_SILENT)
                train_start = partial(train, data, site, agent, n_features=n_features, units=units, from_rest=from_rest)
                starts = [train_start(seed=seed) for seed in range(N_STARTS)]
                select = partial(_select, instance, group, agent, slopes[instance.members(group).index(agent)])
                used = None
                for max_loss in MAX_LOSSES:
                    pruned = [prune_dictionary(d, data, max_loss=max_loss, seed=k) for k, d in enumerate(starts)]
                    smallest = min(pruned, key=lambda candidate: (len(candidate.warnings), candidate.n_features))
                    used = select(smallest, min_variance)
                    if used is None or used.expressed_share >= MIN_EXPRESSED:
                        break
                if used is not None:
                    yield used


def _select(
    instance: Instance, group: str, agent: str, slopes: np.ndarray, dictionary: Dictionary, min_variance: float
) -> UsedFeatures | None:
    """The features whose part of a driven logit has at least the minimal variance; None if there are none.

    Args:
        slopes: `[output, unit]`, of the agent.
        min_variance: minimal variance of a part, in squared logits.
    """
    lost, whole = parts(instance, group, agent, dictionary), driven_logits(instance, group, agent)
    sizes = lost.var(1).max(1)
    selected = np.flatnonzero(sizes >= min_variance)
    if not len(selected):
        return None
    directions = dictionary.autoencoder.decoder.numpy()[selected]
    _, strengths, read_basis = np.linalg.svd(slopes, full_matrices=False)
    read_basis = read_basis[strengths > MIN_STRENGTH * strengths[0]]
    return UsedFeatures(
        agent=agent,
        site=dictionary.site,
        group=group,
        logit_parts=lost[selected],
        values=dictionary.features(instance.recording)[:, 0, selected] * float(dictionary.autoencoder.scale),
        directions=directions,
        expressed_share=share_kept(whole, lost[selected].sum(0)),
        kurtosis=float(np.average(dictionary.kurtosis[selected], weights=sizes[selected])),
        min_read_share=float(np.square(directions @ read_basis.T).sum(1).min()),
        from_rest=dictionary.from_rest,
    )


def _by_edits(instance: Instance, used: UsedFeatures) -> list[np.ndarray]:
    """Driven logits `[row, output]`: without edits, with only the features' span kept, and with only the span removed.

    Removed directions are set to their mean.
    """
    k, batch = instance.members(used.group).index(used.agent), instance.batch(used.group)
    mean = instance.recording[used.site].sel(agent=[used.agent]).to_numpy()[:, 0].mean(0)
    basis, sizes, _ = np.linalg.svd(used.directions.T)
    rank = int((sizes > 1e-6 * sizes[0]).sum())
    logits = [instance.logits(used.group, batch, [])[:, k]]
    for rows in (basis.T[rank:], basis.T[:rank]):
        removed = tuple(Direction(used.site, used.agent, tuple(map(float, r)), float(mean @ r), 1.0) for r in rows)
        edits: list[Edit] = [Erase(used.site, directions=removed, agents=(used.agent,))] if removed else []
        logits.append(instance.logits(used.group, batch, edits)[:, k])
    return logits


def _effect_claims(instance: Instance, used: UsedFeatures) -> list[Claim]:
    """By feature: the output with the largest effect, and the effect of a unit step along the feature."""
    claims: list[Claim] = []
    for row, value, part in zip(used.rows, used.values.T, used.logit_parts):
        slopes = value @ part / float(value @ value)
        most = int(np.abs(slopes).argmax())
        output, step = instance.outputs[used.group][most], float(slopes[most])
        claims.append(FeatureEffectClaim(agent=used.agent, site=used.site, direction=row, output=output, value=step))
    return claims


def _onset_claim(instance: Instance, used: UsedFeatures, part: np.ndarray) -> Claim:
    """By episode: the step at which the features' part `[row, output]` of the driven logits changes most."""
    rows = instance.recording.rows[["episode", "t"]].copy()
    rows["jump"] = np.linalg.norm(np.diff(part, axis=0, prepend=0.0), axis=1)
    later = rows[rows["t"] > 0]
    most = later.loc[later.groupby("episode")["jump"].idxmax()]
    return OnsetClaim(
        agent=used.agent, site=used.site, steps=tuple(zip(map(int, most["episode"]), map(int, most["t"])))
    )
