"""export: writes instances to files, for other tools. score_submission: scores the findings of such a tool.

An answer key is a function of the circuit's name, network, sharing and seed, so a blind test needs secret seeds.
`task.json` contains the key's hash. The keys are in a separate file next to the folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from marlnb.errors import AnalysisError, ConfigError
from marlnb.groundtruth.answer_key import AnswerKey
from marlnb.groundtruth.benchmark import Benchmark, instances, versions
from marlnb.groundtruth.planting import Planted, planted
from marlnb.groundtruth.scoring.claims import CLAIMS
from marlnb.groundtruth.scoring.faithfulness import onset_steps, with_faithfulness
from marlnb.groundtruth.scoring.finding import Finding, check_unique
from marlnb.groundtruth.scoring.score import Score, score
from marlnb.groundtruth.scoring.valid_claims import check_claims
from marlnb.training.policies.evaluation import check_episodes

KEYS = "keys.json"
README = """# Planted circuits

Each folder holds one instance: `task.json` (what to find), `weights-<group>.npz` (the actor's parameters),
`recordings/recording.h5` (observations, actions, activations; its layout is in marlnb's docs/recording-files.md).

Observations o `[agent, feature]` (with shared weights and more than one agent, the agent's index is appended, one-hot).

    h = relu(W1 o + b1)                              W1 = *hidden.0.linear.weight, `[unit, feature]`
    mlp:  s = relu(W2 h + b2)                        W2 = *hidden.1.linear.weight
    gru:  r, u, c = Wi h + bi in three equal parts   Wi = *gru.input.weight;  Ws = *gru.state.weight, in three parts too
          s = c' + sigmoid(u + Ws_u s) (s - c'),     c' = tanh(c + sigmoid(r + Ws_r s) (Ws_c s)), s = 0 at t = 0
    logits = W3 s + b3                               W3 = *head.weight; the largest logit is the action

Unshared weights have a leading axis of agents. Sites: `<group>/actor/hidden_1` is h, `hidden_2` or `gru` is s.

A submission is a JSON list of findings, one for each instance, with the fields that `task.json` names:

    {"analysis": "yours", "circuit": "...", "network": "mlp", "shared": true, "seed": 0,
     "attempts": ["agents", "units"],
     "claims": [{"kind": "agents", "agents": ["agent_1"]},
                {"kind": "units", "agent": "agent_1", "site": "agent/actor/hidden_1", "units": [4]}]}

A tool that abstains from some kinds of claims lists them in "abstains". These are counted separately.

`python -m marlnb.groundtruth score SUBMISSION.json --path THIS_FOLDER` scores it. docs/ground-truth.md lists the
kinds of claim and their scores.
"""


def export(
    path: str | os.PathLike[str],
    seeds: Iterable[int] = range(3),
    *,
    circuits: Iterable[str] | None = None,
    episodes: int = 60,
) -> list[Planted]:
    """Writes instances, their recordings and a README to a folder, and the keys to `<folder>.keys.json`.

    Args:
        path: output folder; `.` is the working directory, whose keys are then in the folder above.
        seeds: seeds of the instances.
        circuits: names of circuits; None: all.
        episodes: number of recorded episodes per instance.
    Raises:
        AnalysisError: the folder has an export with another number of episodes, or of instances that are not requested,
            or a file of it is damaged.
        ConfigError: no episodes are requested.
    """
    check_episodes(episodes, seed=0, n_envs=None)
    folder = Path(os.path.abspath(path))
    keys = Path(f"{folder}.{KEYS}")
    requested = versions(seeds, circuits)
    exported_keys = load_keys(keys) if keys.exists() else []
    if others := {(key.name, key.network, key.shared, key.seed) for key in exported_keys} - {*requested}:
        raise AnalysisError(f"{keys} has keys of {len(others)} other instances that would be lost; use another folder")
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "benchmark.json"
    if settings.exists() and (existing := _field(settings, "episodes")) != episodes:
        raise AnalysisError(f"{folder} was exported with {existing} episodes, requested {episodes}; use another folder")
    settings.write_text(json.dumps({"episodes": episodes}))
    (folder / "README.md").write_text(README)
    exported = []
    for instance in instances(requested, folder):
        instance.record(episodes).close()
        write_instance(instance)
        exported.append(instance)
    keys.write_text(json.dumps([instance.key.to_json() for instance in exported], indent=1))
    return exported


def write_instance(planted: Planted) -> None:
    """Writes the task and the actors' weights to the instance's folder."""
    folder = planted.agents.path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.json").write_text(json.dumps(asdict(planted.task), indent=1))
    for group, policy in planted.policies.items():
        weights = {
            name: tensor.numpy() for name, tensor in policy.state_dict().items() if name.startswith("actor.network.")
        }
        np.savez(folder / f"weights-{group}.npz", **weights)  # type: ignore[arg-type]


def score_submission(findings: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> Benchmark:
    """Scores a submission against instances that `export` wrote.

    Raises:
        AnalysisError: the folder is not an export, a finding is malformed or there twice, or its instance is not in the
            folder or has another key there.
    """
    settings = Path(path) / "benchmark.json"
    if not settings.exists():
        raise AnalysisError(f"expected an export in {path}, found no benchmark.json")
    episodes = _field(settings, "episodes")
    if not isinstance(findings, Sequence):
        raise AnalysisError(f"a submission is a list of findings, got a {type(findings).__name__}")
    submitted = [Finding.from_json(data) for data in findings]
    check_unique(submitted, "finding")
    return Benchmark(tuple(_score(finding, path, episodes) for finding in submitted), None, {})


def load_keys(path: str | os.PathLike[str]) -> list[AnswerKey]:
    """Reads the keys that `export` wrote.

    Raises:
        AnalysisError: the file is damaged.
    """
    data = read_json(path)
    try:
        return [AnswerKey.from_json(key) for key in data]
    except (AttributeError, KeyError, TypeError) as error:
        raise AnalysisError(f"{path} is damaged: expected the keys that export wrote; {error!r}") from error


def read_json(path: str | os.PathLike[str]) -> Any:
    """The content of a file.

    Raises:
        OSError: it cannot be read.
        AnalysisError: it is not JSON.
    """
    try:
        return json.loads(Path(path).read_text())
    except (ValueError, RecursionError) as error:
        raise AnalysisError(f"{path} is not JSON: {error}") from error


def _field(file: Path, name: str) -> Any:
    data = read_json(file)
    if not isinstance(data, dict) or name not in data:
        raise AnalysisError(f"{file} is damaged: expected the field {name!r}, which export wrote")
    return data[name]


def _score(finding: Finding, path: str | os.PathLike[str], episodes: int) -> Score:
    network: Any = finding.network
    try:
        instance = planted(finding.circuit, network, shared=finding.shared, seed=finding.seed, path=path)
    except ConfigError as error:
        raise AnalysisError(f"a finding of an unknown instance: {error}") from error
    name, task = instance.agents.path.name, instance.agents.path / "task.json"
    if not task.exists():
        raise AnalysisError(f"no instance {name!r} in {path}")
    if _field(task, "key_sha256") != instance.task.key_sha256:
        raise AnalysisError(f"{task} has the hash of another key: another version of marlnb exported {name!r}")
    check_claims(finding, instance)
    attempts = tuple(kind for kind in finding.attempts if not CLAIMS[kind].measured)
    with instance.record(episodes) as recording:
        measured = with_faithfulness(instance, recording, replace(finding, attempts=attempts))
        return score(measured, instance.key, onsets=onset_steps(recording, instance.key))
