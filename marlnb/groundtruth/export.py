"""export: instances for a tool that is not marlnb, as files; score_submission: what it found, scored.

The key of an instance is a function of its name, network, sharing and seed, so who wants a tool to be blind draws seeds
that nobody knows. `question.json` has the key's hash; the keys themselves lie beside the folder, not in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from marlnb.errors import AnalysisError
from marlnb.groundtruth.answer_key import AnswerKey
from marlnb.groundtruth.benchmark import Benchmark, instances
from marlnb.groundtruth.planting import Planted, planted
from marlnb.groundtruth.scoring.claims import Finding
from marlnb.groundtruth.scoring.faithfulness import measured, onset_steps
from marlnb.groundtruth.scoring.score import Score, score

KEYS = "keys.json"
README = """# Planted circuits

Each folder holds one instance: `question.json` (what to find), `weights-<group>.npz` (the actor's parameters),
`recordings/recording.h5` (what the agents saw, did and held; its layout is in marlnb's docs/recording-files.md).

Observations o `[agent, feature]` (with shared weights and more than one agent, the agent's index is appended, one-hot).

    h = relu(W1 o + b1)                              W1 = *hidden.0.linear.weight, `[unit, feature]`
    mlp:  s = relu(W2 h + b2)                        W2 = *hidden.1.linear.weight
    gru:  r, u, c = Wi h + bi in three equal parts   Wi = *gru.input.weight;  Ws = *gru.state.weight, in three parts too
          s = c' + sigmoid(u + Ws_u s) (s - c'),     c' = tanh(c + sigmoid(r + Ws_r s) (Ws_c s)), s = 0 at t = 0
    logits = W3 s + b3                               W3 = *head.weight; the largest logit is the action

Unshared weights have a leading axis of agents. Sites: `<group>/actor/hidden_1` is h, `hidden_2` or `gru` is s.

A submission is a JSON list of findings, one for each instance, with the fields that `question.json` names:

    {"analysis": "yours", "circuit": "...", "network": "mlp", "shared": true, "seed": 0,
     "attempts": ["agents", "units"],
     "claims": [{"kind": "agents", "agents": ["agent_1"]},
                {"kind": "units", "agent": "agent_1", "site": "agent/actor/hidden_1", "units": [4]}]}

A tool that has reason not to make some of its claims here names their kinds in "abstains": they are counted apart.

`python -m marlnb.groundtruth score SUBMISSION.json --path THIS_FOLDER` scores it. docs/ground-truth.md has every
kind of claim and how it is scored.
"""


def export(
    path: str | os.PathLike[str],
    seeds: Sequence[int] = range(3),
    *,
    circuits: Sequence[str] | None = None,
    episodes: int = 60,
) -> list[Planted]:
    """Writes instances, their recordings and the README into a folder, and the keys beside it in `<folder>.keys.json`.

    Raises:
        AnalysisError: the folder was exported with another number of episodes.
    """
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    about = folder / "benchmark.json"
    if about.exists() and json.loads(about.read_text())["episodes"] != episodes:
        raise AnalysisError(f"{folder} was exported with other episodes than {episodes}; give another folder")
    about.write_text(json.dumps({"episodes": episodes}))
    (folder / "README.md").write_text(README)
    made = []
    for subject in instances(seeds, circuits, folder):
        subject.record(episodes).close()
        write_instance(subject)
        made.append(subject)
    keys = folder.with_name(f"{folder.name}.{KEYS}")
    keys.write_text(json.dumps([subject.key.to_json() for subject in made], indent=1))
    return made


def write_instance(subject: Planted) -> None:
    """The question and the actors' weights, into the instance's own folder."""
    folder = subject.agents.path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "question.json").write_text(json.dumps(asdict(subject.question), indent=1))
    for group, policy in subject.policies.items():
        weights = {
            name: tensor.numpy() for name, tensor in policy.state_dict().items() if name.startswith("actor.network.")
        }
        np.savez(folder / f"weights-{group}.npz", **weights)  # type: ignore[arg-type]


def score_submission(findings: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> Benchmark:
    """Scores a submission on instances that `export` wrote.

    Raises:
        AnalysisError: the folder holds no export, or a finding is malformed or of an instance that is not in it.
    """
    about = Path(path) / "benchmark.json"
    if not about.exists():
        raise AnalysisError(f"{path} was not made by export: it has no benchmark.json")
    episodes = json.loads(about.read_text())["episodes"]
    scores = tuple(_scored(Finding.from_json(data), path, episodes) for data in findings)
    return Benchmark(scores, 0.0, {})


def load_keys(path: str | os.PathLike[str]) -> list[AnswerKey]:
    """The keys that `export` wrote."""
    return [AnswerKey.from_json(data) for data in json.loads(Path(path).read_text())]


def _scored(finding: Finding, path: str | os.PathLike[str], episodes: int) -> Score:
    network: Any = finding.network
    subject = planted(finding.circuit, network, shared=finding.shared, seed=finding.seed, path=path)
    if not (subject.agents.path / "question.json").exists():
        raise AnalysisError(f"{path} holds no instance {subject.agents.path.name}")
    given = replace(finding, attempts=tuple(k for k in finding.attempts if k not in ("complete", "necessary")))
    with subject.record(episodes) as recording:
        return score(measured(subject, recording, given), subject.key, onsets=onset_steps(recording, subject.key))
