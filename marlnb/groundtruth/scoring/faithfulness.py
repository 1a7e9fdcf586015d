"""Faithfulness: what is left of an agent's logits with the claimed parts of a site alone, and without them; and
whether a change in one agent reaches another's logits of the same step.

Measured by plain hooks on the policies, apart from the edits that are being scored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from marlnb.analysis.data.rows import Moments, RowSource
from marlnb.errors import SiteError, unknown
from marlnb.groundtruth.answer_key import AnswerKey
from marlnb.groundtruth.planting import Planted
from marlnb.groundtruth.scoring.claims import MEASURED_KINDS, Claim, Finding
from marlnb.models.policies.policy import Policy
from marlnb.recording.file.reader import Recording


@dataclass(frozen=True)
class Faithfulness:
    """Shares of the variance, over rows, of the driven logits of an agent.

    Attributes:
        kept: with the rest of the site at its mean; removed: with the claimed part at its mean. A circuit that was
            found whole has kept 1 and removed 0 or less.
    """

    agent: str
    site: str
    kept: float
    removed: float


def faithfulness(planted: Planted, recording: Recording, finding: Finding) -> list[Faithfulness]:
    """Of every site at which the finding claims units, or a subspace where it claims one, or features, or what
    they move: their span."""
    outputs = dict(planted.question.outputs)
    parts: dict[tuple[str, str], np.ndarray] = {}
    for kind in ("units", "subspace"):  # a subspace says more, and comes last
        for claim in finding.of(kind):
            if claim.units or claim.basis:
                parts[claim.agent, claim.site] = _basis(claim, planted)
    written: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for claim in (*finding.of("features"), *finding.of("span"), *finding.of("moves")):
        written.setdefault((claim.agent, claim.site), []).extend(claim.basis or [claim.direction])
    parts |= {place: _spanned(np.array(rows)) for place, rows in written.items()}
    found = []
    for (agent, site), basis in parts.items():
        group = site.split("/")[0]
        played = Played(planted, recording, group)
        whole = played.logits()
        mean = played.activation(agent, site).mean(0)
        kept = played.logits(agent, site, partial(_inside, basis, mean))
        removed = played.logits(agent, site, partial(_outside, basis, mean))
        chosen = list(outputs.get(group, ()))
        k = planted.agents.spec.group(group).agents.index(agent)
        shares = [_explained(whole[:, k][:, chosen], x[:, k][:, chosen]) for x in (kept, removed)]
        found.append(Faithfulness(agent, site, *shares))
    return found


def spillover(planted: Planted, recording: Recording) -> float:
    """Largest change, in logits, of any other agent's logits of the same step, when all of one agent's hidden units
    are set to zero at one site; over all agents and sites. Exactly 0 where the networks do not mix agents."""
    worst = 0.0
    for group in planted.question.groups:
        played = Played(planted, recording, group)
        whole, agents = played.logits(), planted.agents.spec.group(group).agents
        for site in played.hidden_sites():
            for k, agent in enumerate(agents):
                change = np.abs(played.logits(agent, site, np.zeros_like) - whole)
                worst = max(worst, float(np.delete(change, k, axis=1).max(initial=0.0)))
    return worst


def measured(planted: Planted, recording: Recording, finding: Finding) -> Finding:
    """The finding with its faithfulness among its claims, where it claims units, subspaces or features, and does not
    abstain from saying that they are whole.

    Not where a node is written along other directions than it is read along: taking a part out by a projection takes
    some of what overlaps with it, so that even the planted directions would not keep all.
    """
    skewed = any(node.written for node in planted.key.nodes)
    if skewed or not {"units", "subspace", "features", "span"} & set(finding.attempts):
        return finding
    last = {node.site for node in planted.key.nodes if node.readout}
    claims = []
    if not set(MEASURED_KINDS) & set(finding.abstains):
        for part in faithfulness(planted, recording, finding):
            if part.site in last and part.agent in planted.key.agents:
                claims.append(Claim("complete", agent=part.agent, site=part.site, value=part.kept))
                claims.append(Claim("necessary", agent=part.agent, site=part.site, value=part.removed))
    return replace(finding, attempts=(*finding.attempts, *MEASURED_KINDS), claims=(*finding.claims, *claims))


def onset_steps(recording: Recording, key: AnswerKey) -> dict[int, int]:
    """By episode, the first recorded step at which the key's onset label is positive; episodes without one left out."""
    if not key.onset:
        return {}
    rows, label = recording.rows, recording.label(key.onset).to_numpy()
    known = rows[label > 0]
    return {int(episode): int(t) for episode, t in known.groupby("episode")["t"].min().items()}


class Played:
    """One group's policy on the rows of a recording, each with the state that entered its step."""

    def __init__(self, planted: Planted, recording: Recording, group: str) -> None:
        source = RowSource(recording, group)
        rows = source.rows(None)
        self.policy: Policy = planted.policies[group]
        self.agents = planted.agents.spec.group(group).agents
        self.moments: Moments = next(iter(source.batches(rows, len(rows))))

    def hidden_sites(self) -> list[str]:
        return [site.name for site in self.policy.sites() if "/actor/" in site.name and site.kind != "head"]

    def logits(
        self, agent: str = "", site: str = "", change: Callable[[np.ndarray], np.ndarray] | None = None
    ) -> np.ndarray:
        """`[row, agent, output]`, with one agent's activations `[row, unit]` at a site changed or not."""
        with self._hooked(agent, site, change), torch.no_grad():
            seen = self.moments.observations[self.policy.group.name]
            found, _ = self.policy.logits(seen, recurrent=self.moments.recurrent)
        return found.numpy().astype(np.float64)

    def activation(self, agent: str, site: str) -> np.ndarray:
        """`[row, unit]`."""
        kept: list[np.ndarray] = []

        def keep(values: np.ndarray) -> np.ndarray:
            kept.append(values)
            return values

        self.logits(agent, site, keep)
        return kept[0]

    @contextmanager
    def _hooked(self, agent: str, site: str, change: Callable[[np.ndarray], np.ndarray] | None) -> Iterator[None]:
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


def _basis(claim: Claim, planted: Planted) -> np.ndarray:
    """`[dimension, unit]`, orthonormal."""
    if claim.kind == "subspace":
        orthonormal: np.ndarray = np.linalg.qr(np.array(claim.basis).T)[0].T
        return orthonormal
    (width,) = {site.n_units for p in planted.policies.values() for site in p.sites() if site.name == claim.site}
    return np.eye(width)[list(claim.units)]


def _spanned(rows: np.ndarray) -> np.ndarray:
    """`[dimension, unit]`, orthonormal; rows that coincide count once."""
    _, sizes, basis = np.linalg.svd(rows, full_matrices=False)
    return basis[sizes > 1e-6 * sizes[0]]


def _inside(basis: np.ndarray, mean: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`[row, unit]` at its mean but for what lies in the basis `[dimension, unit]`."""
    inside: np.ndarray = mean + (values - mean) @ basis.T @ basis
    return inside


def _outside(basis: np.ndarray, mean: np.ndarray, values: np.ndarray) -> np.ndarray:
    return values - _inside(basis, mean, values) + mean


def _explained(true: np.ndarray, found: np.ndarray) -> float:
    total = ((true - true.mean(0)) ** 2).sum()
    return float(1 - ((true - found) ** 2).sum() / total) if total else float("nan")
