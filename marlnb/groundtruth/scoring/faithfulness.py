"""Faithfulness of claimed parts: what remains of an agent's logits with these parts alone, and without them.

Also whether a change in one agent reaches another's logits of the same step. Measured by plain hooks on the policies,
independently of the edits that are being scored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from marlnb.analysis.data.rows import RowBatch, RowSource
from marlnb.errors import SiteError, unknown
from marlnb.groundtruth.answer_key import AnswerKey
from marlnb.groundtruth.planting import Planted
from marlnb.groundtruth.scoring.circuit_claims import CompleteClaim, NecessaryClaim, SubspaceClaim, UnitsClaim
from marlnb.groundtruth.scoring.claims import Claim, orthonormal_basis
from marlnb.groundtruth.scoring.feature_claims import DirectionsClaim, FeatureClaim, FeatureEffectClaim, SpanClaim
from marlnb.groundtruth.scoring.finding import Finding
from marlnb.models.hooks.sites import group_of
from marlnb.models.policies.policy import Policy
from marlnb.recording.file.reader import Recording

Change = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Faithfulness:
    """Shares of the variance, over rows, of an agent's driven logits. A complete circuit has kept 1, removed <= 0.

    Attributes:
        agent: agent name.
        site: site name.
        kept: share that remains with the rest of the site at its mean; NaN if the logits do not vary.
        removed: share that remains with the claimed part at its mean.
    """

    agent: str
    site: str
    kept: float
    removed: float


def faithfulness(planted: Planted, recording: Recording, finding: Finding) -> list[Faithfulness]:
    """The faithfulness of the claimed part of each site: a subspace, or units, or the span of the claimed features.

    With a basis B of the part, h' = mean + B^T B (h - mean) keeps it and h' = h - B^T B (h - mean) removes it; a share
    is 1 - SS(logits - logits') / SS(logits - mean logits).
    """
    outputs = dict(planted.task.outputs)
    widths = {s.name: s.n_units for policy in planted.policies.values() for s in policy.sites()}
    results = []
    for (agent, site), basis in _claimed_parts(finding, widths).items():
        group = group_of(site)
        replay = RowReplay(planted, recording, group)
        baseline = replay.logits()
        mean = replay.activation(agent, site).mean(0)
        kept = replay.logits(agent, site, partial(_keep_part, basis, mean))
        removed = replay.logits(agent, site, partial(_remove_part, basis, mean))
        driven = list(outputs.get(group, ()))
        k = planted.agents.spec.group(group).agents.index(agent)
        shares = [_explained_share(baseline[:, k][:, driven], x[:, k][:, driven]) for x in (kept, removed)]
        results.append(Faithfulness(agent, site, *shares))
    return results


def _claimed_parts(finding: Finding, widths: Mapping[str, int]) -> dict[tuple[str, str], np.ndarray]:
    """By agent and site, a basis `[dimension, unit]` of all that the claims there name.

    A subspace says more than units, and the directions that features write say more than a subspace.
    """
    Rows = defaultdict[tuple[str, str], list[Sequence[float] | np.ndarray]]
    units, subspaces, directions = Rows(list), Rows(list), Rows(list)
    for claim in finding.claims:
        if isinstance(claim, UnitsClaim):
            units[claim.agent, claim.site].extend(np.eye(widths[claim.site])[list(claim.units)])
        elif isinstance(claim, SubspaceClaim):
            subspaces[claim.agent, claim.site].extend(claim.basis)
        elif isinstance(claim, DirectionsClaim):
            directions[claim.agent, claim.site].extend(claim.basis)
        elif isinstance(claim, FeatureEffectClaim):
            directions[claim.agent, claim.site].append(claim.direction)
    parts: dict[tuple[str, str], np.ndarray] = {}
    for kind in (units, subspaces, directions):
        parts |= {pair: orthonormal_basis(np.array(rows)) for pair, rows in kind.items() if rows}
    return parts


def spillover(planted: Planted, recording: Recording) -> float:
    """Largest change, in logits, of another agent's logits of the same step, when all of one agent's units at one site
    are set to zero; over all agents and sites. Exactly 0 if no agent reads another's activations."""
    largest = 0.0
    for group in planted.task.groups:
        replay = RowReplay(planted, recording, group)
        baseline, agents = replay.logits(), planted.agents.spec.group(group).agents
        for site in hidden_sites(replay.policy):
            for k, agent in enumerate(agents):
                change = np.abs(replay.logits(agent, site, np.zeros_like) - baseline)
                largest = max(largest, float(np.delete(change, k, axis=1).max(initial=0.0)))
    return largest


def with_faithfulness(planted: Planted, recording: Recording, finding: Finding) -> Finding:
    """The finding with claims of its faithfulness, if it claims parts and does not abstain from their completeness.

    Not if a node is written along other directions than it is read along: a projection then also removes what overlaps
    with the part, so even the planted directions would not keep everything.
    """
    measured = (CompleteClaim.kind, NecessaryClaim.kind)
    part_kinds: tuple[type[Claim], ...] = (UnitsClaim, SubspaceClaim, FeatureClaim, SpanClaim)
    is_oblique = any(node.written for node in planted.key.nodes)
    if is_oblique or not {kind.kind for kind in part_kinds} & set(finding.attempts):
        return finding
    readout_sites = {node.site for node in planted.key.nodes if node.readout}
    claims: list[Claim] = []
    if not set(measured) & set(finding.abstains):
        for part in faithfulness(planted, recording, finding):
            if part.site in readout_sites and part.agent in planted.key.agents:
                claims.append(CompleteClaim(agent=part.agent, site=part.site, value=part.kept))
                claims.append(NecessaryClaim(agent=part.agent, site=part.site, value=part.removed))
    return replace(finding, attempts=(*finding.attempts, *measured), claims=(*finding.claims, *claims))


def onset_steps(recording: Recording, key: AnswerKey) -> dict[int, int]:
    """By episode, the first recorded step at which the key's onset label is positive; only episodes that have one."""
    if not key.onset:
        return {}
    rows, label = recording.rows, recording.label(key.onset).to_numpy()
    positive = rows[label > 0]
    return {int(episode): int(t) for episode, t in positive.groupby("episode")["t"].min().items()}


def every_row(recording: Recording, group: str) -> RowBatch:
    """Every recorded row of a group, with the recurrent state before it."""
    source = RowSource(recording, group)
    rows = source.rows(None)
    return next(iter(source.batches(rows, len(rows))))


def hidden_sites(policy: Policy) -> list[str]:
    """The actor's sites in forward order, without the head."""
    return [site.name for site in policy.sites() if site.part == "actor" and site.kind != "head"]


class RowReplay:
    """One group's policy on the rows of a recording, each with the recurrent state before its step."""

    def __init__(self, planted: Planted, recording: Recording, group: str) -> None:
        self.policy: Policy = planted.policies[group]
        self.agents = planted.agents.spec.group(group).agents
        self.batch = every_row(recording, group)

    def logits(self, agent: str = "", site: str = "", change: Change | None = None) -> np.ndarray:
        """`[row, agent, output]`; `change` replaces one agent's activations `[row, unit]` at a site."""
        with self._hooked(agent, site, change), torch.no_grad():
            observation = self.batch.observations[self.policy.group.name]
            logits, _ = self.policy.logits(observation, recurrent=self.batch.recurrent)
        return logits.numpy().astype(np.float64)

    def activation(self, agent: str, site: str) -> np.ndarray:
        """`[row, unit]`."""
        activations: list[np.ndarray] = []

        def store(values: np.ndarray) -> np.ndarray:
            activations.append(values)
            return values

        self.logits(agent, site, store)
        return activations[0]

    @contextmanager
    def _hooked(self, agent: str, site: str, change: Change | None) -> Iterator[None]:
        if change is None:
            yield
            return
        sites = {known.name: known for known in self.policy.sites()}
        if site not in sites:
            raise SiteError(unknown("site", site, sites))
        row = sites[site].row_of(self.agents.index(agent))

        def hook(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
            changed = output.clone()
            values = output[..., row, :].detach().numpy().astype(np.float64)
            changed[..., row, :] = torch.from_numpy(change(values)).to(output.dtype)
            return changed

        handle = sites[site].module.register_forward_hook(hook)
        try:
            yield
        finally:
            handle.remove()


def _keep_part(basis: np.ndarray, mean: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values `[row, unit]` at their mean, except in the span of the basis `[dimension, unit]`."""
    kept: np.ndarray = mean + (values - mean) @ basis.T @ basis
    return kept


def _remove_part(basis: np.ndarray, mean: np.ndarray, values: np.ndarray) -> np.ndarray:
    return values - _keep_part(basis, mean, values) + mean


def _explained_share(true: np.ndarray, predicted: np.ndarray) -> float:
    total = ((true - true.mean(0)) ** 2).sum()
    return float(1 - ((true - predicted) ** 2).sum() / total) if total else float("nan")
