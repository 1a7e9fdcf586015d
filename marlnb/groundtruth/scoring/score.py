"""score: compares a finding with the answer key: what was recovered, by kind of claim, and what was claimed falsely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from marlnb.errors import AnalysisError
from marlnb.groundtruth.answer_key import AnswerKey
from marlnb.groundtruth.scoring.claims import CLAIMS, Item, Onsets, Truth
from marlnb.groundtruth.scoring.false_discoveries import decoys_claimed, stray_share
from marlnb.groundtruth.scoring.finding import Finding


@dataclass(frozen=True)
class Score:
    """How a finding compares with the key.

    Attributes:
        finding: the finding.
        items: everything that the finding attempted and the key has, without `abstained`.
        decoys_claimed: number of decoys that were claimed.
        decoys: number of decoys that the claims could have named.
        strays: share of claimed units that belong to neither the circuit nor a decoy; None without claimed units.
        abstained: what the finding declined to claim and the key has.
    """

    finding: Finding
    items: tuple[Item, ...]
    decoys_claimed: int
    decoys: int
    strays: float | None
    abstained: tuple[Item, ...] = ()

    @property
    def recovered(self) -> float:
        """Mean over the items; NaN if the attempted kinds had nothing to find."""
        return float(np.mean([item.recovered for item in self.items])) if self.items else float("nan")

    @property
    def recovered_of_all(self) -> float:
        """The same with everything that was declined counted as missed."""
        everything = [item.recovered for item in (*self.items, *self.abstained)]
        return float(np.mean(everything)) if everything else float("nan")

    @property
    def false_discovery_rate(self) -> float:
        """Share of decoys claimed; NaN if the claims could not name one."""
        return self.decoys_claimed / self.decoys if self.decoys else float("nan")

    def by_kind(self) -> dict[str, float]:
        kinds = dict.fromkeys(item.kind for item in self.items)
        return {kind: float(np.mean([i.recovered for i in self.items if i.kind == kind])) for kind in kinds}

    def table(self) -> pd.DataFrame:
        """One row per item."""
        return pd.DataFrame([asdict(item) for item in self.items], columns=["kind", "what", "recovered"])

    def to_json(self) -> dict[str, Any]:
        finding = self.finding
        return {
            "analysis": finding.analysis,
            "circuit": finding.circuit,
            "network": finding.network,
            "shared": finding.shared,
            "seed": finding.seed,
            "recovered": self.recovered if self.items else None,  # JSON has no NaN
            "by_kind": self.by_kind(),
            "decoys_claimed": self.decoys_claimed,
            "decoys": self.decoys,
            "strays": self.strays,
            "items": [asdict(item) for item in self.items],
            "abstained": [asdict(item) for item in self.abstained],
            "doubts": list(finding.doubts),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Score:
        """What `to_json` wrote; of the finding only its name and doubts.

        Raises:
            KeyError, TypeError, ValueError: something else.
        """
        names = ("analysis", "circuit", "network", "shared", "seed")
        instance = {name: data[name] for name in names}
        finding = Finding(**instance, attempts=(), claims=(), doubts=tuple(data.get("doubts", ())))
        items, abstained = (
            tuple(Item(item["kind"], item["what"], float(item["recovered"])) for item in data.get(name, ()))
            for name in ("items", "abstained")
        )
        strays = None if data["strays"] is None else float(data["strays"])
        return Score(finding, items, int(data["decoys_claimed"]), int(data["decoys"]), strays, abstained)


def score(finding: Finding, key: AnswerKey, *, onsets: Onsets | None = None) -> Score:
    """Scores every kind of claim that the finding attempted; the classes of the kinds say how.

    Args:
        finding: the finding.
        key: the answer key of the same instance.
        onsets: the true step of each episode of the analysed recording (`onset_steps`), for onset claims.
    Raises:
        AnalysisError: the finding is of another instance, or it claims onsets and `onsets` is None.
    """
    instance = (finding.circuit, finding.network, finding.shared, finding.seed)
    expected = (key.name, key.network, key.shared, key.seed)
    if instance != expected:
        raise AnalysisError(f"the finding is of the instance {instance}, the key of {expected}")
    items: list[Item] = []
    abstained: list[Item] = []
    for kind in finding.attempts:
        scored = CLAIMS[kind].score(finding.of(CLAIMS[kind]), Truth(key, onsets))
        (abstained if kind in finding.abstains else items).extend(scored)
    claimed, decoys = decoys_claimed(finding, key)
    return Score(finding, tuple(items), claimed, decoys, stray_share(finding, key), tuple(abstained))
