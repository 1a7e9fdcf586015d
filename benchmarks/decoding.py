"""The cost of decoding: a recording larger than memory, streamed, and many small fits compared with scikit-learn's.

    python -m benchmarks.decoding [--gb 10] [--folder /tmp] [--kind regression|classification]

Writes a synthetic recording (3 agents × 256 units that encode a label), decodes it in a process of its own, compares
the process's peak resident size with 2 GiB, and deletes the recording. Bandwidth counts the activations, once.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from marlnb.algorithms.configs.ppo import MAPPOConfig
from marlnb.analysis.decoding.decode import decode
from marlnb.analysis.stats.linear_models import score_labels
from marlnb.config import ENVIRONMENTS
from marlnb.experiment import Experiment
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.recording.file.layout import FORMAT, VERSION, Field
from marlnb.recording.file.reader import Recording
from marlnb.recording.file.writer import RecordingWriter
from marlnb.training.runs.spec_file import spec_to_json

AGENTS, UNITS, LENGTH, AT_ONCE = 3, 256, 25, 400
SITE = "agent/actor/hidden_1"
PLANTED_R2 = 0.8
LIMIT_BYTES = 2 * 2**30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=10.0)
    parser.add_argument("--folder", default=None)
    parser.add_argument("--kind", choices=("regression", "classification"), default="regression")
    parser.add_argument("--shuffles", type=int, default=20)
    parser.add_argument("--read", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        print(json.dumps(decoded(Path(arguments.read), arguments.kind, arguments.shuffles)))
        return
    many_fits()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = Path(folder) / "synthetic.h5"
        start = time.perf_counter()
        rows = write(path, arguments.gb)
        size, spent = path.stat().st_size, time.perf_counter() - start
        print(
            f"\nwritten: {size / 1e9:.1f} GB, {rows:,} rows, {spent:.0f} s ({size / 1e6 / spent:.0f} MB/s)", flush=True
        )
        words = ["--read", str(path), "--kind", arguments.kind, "--shuffles", str(arguments.shuffles)]
        command = [sys.executable, "-m", "benchmarks.decoding", *words]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    result = json.loads(output.splitlines()[-1])
    activations = rows * AGENTS * UNITS * 4
    within = "within" if result["peak_bytes"] <= LIMIT_BYTES else "ABOVE"
    print("| streamed | time | activations read at | peak memory | score | observation | shuffled | p |")
    print("|---|---|---|---|---|---|---|---|")
    print(
        f"| {arguments.kind}, {arguments.shuffles} shuffles, 3 agents | {result['seconds']:.0f} s | "
        f"{activations / 1e6 / result['seconds']:.0f} MB/s | {result['peak_bytes'] / 2**30:.2f} GiB ({within} 2) | "
        f"{result['score']:.3f} | {result['observation']:.3f} | {result['shuffled']:.3f} | {result['p_value']:.3f} |"
    )


def write(path: Path, gigabytes: float) -> int:
    """A recording of that size; the number of its rows."""
    env = ENVIRONMENTS.get("mpe/simple_spread")()
    experiment = Experiment(env=env, algorithm=MAPPOConfig(), model=MLPConfig(hidden=(UNITS, UNITS)))
    with env.build(1, "cpu") as one:
        spec = one.spec
    features = spec.group("agent").observation.size
    fields = [
        Field("steps/env_id", (), (), "int64"),
        Field("steps/episode", (), (), "int64"),
        Field("steps/t", (), (), "int64"),
        Field("steps/agent/observation", ("agent", "feature"), (AGENTS, features), "float32", "agent"),
        Field("steps/agent/action", ("agent",), (AGENTS,), "int64", "agent"),
        Field("steps/agent/acting", ("agent",), (AGENTS,), "bool", "agent"),
        Field("steps/agent/alive", ("agent",), (AGENTS,), "bool", "agent"),
        Field(f"activations/{SITE}", ("agent", "unit"), (AGENTS, UNITS), "float32", "agent"),
        Field("labels/quantity", (), (), "float32"),
        Field("labels/class", (), (), "int64"),
    ]
    rows = int(gigabytes * 1e9) // sum(field.row_bytes for field in fields) // (LENGTH * AT_ONCE) * LENGTH * AT_ONCE
    attributes = {
        "format": FORMAT, "version": VERSION, "experiment": json.dumps(experiment.to_json()), "source": "synthetic",
        "spec": json.dumps(spec_to_json(spec)), "settings": json.dumps({"sites": [SITE]}), "checkpoint": "", "every": 1,
        "iteration": 0, "seed": 0, "dtype": "float32",
    }  # fmt: skip
    names = list(spec.group("agent").agents)
    agents: dict[str, list[Any]] = {
        "id": [0, 1, 2],
        "name": names,
        "group": ["agent"] * AGENTS,
        "policy_index": [0] * AGENTS,
    }
    writer = RecordingWriter(path, fields, attributes, agents, expected_rows=rows)
    writer.add_checkpoint(0, "")
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((AT_ONCE, LENGTH, AGENTS, UNITS), dtype=np.float32)
    for first in range(0, rows // LENGTH, AT_ONCE):
        writer.append(_batch(rng, noise, first, features, writer))
    writer.close(complete=True)
    return rows


def _batch(
    rng: np.random.Generator, noise: np.ndarray, first: int, features: int, writer: RecordingWriter
) -> list[np.ndarray]:
    """Episodes from number `first` on: units encode the quantity with an R² of PLANTED_R2, observations do not."""
    shape = (AT_ONCE, LENGTH)
    episode = np.repeat(first + np.arange(AT_ONCE), LENGTH).reshape(shape)
    columns = {
        "episode": episode[:, 0], "start": episode[:, 0] * LENGTH, "length": np.full(AT_ONCE, LENGTH),
        "n_steps": np.full(AT_ONCE, LENGTH), "seed": episode[:, 0],
    }  # fmt: skip
    writer.add_episodes(columns, np.zeros((AT_ONCE, AGENTS)))
    held = rng.standard_normal(shape, dtype=np.float32)
    units = np.roll(noise, int(rng.integers(AT_ONCE)), axis=0) * rng.choice([-1, 1], UNITS).astype(np.float32)
    units[..., 7] += held[..., None] - units[..., 7]
    quantity = (held + rng.standard_normal(shape) * np.sqrt(1 / PLANTED_R2 - 1)).astype(np.float32)
    seen = rng.standard_normal((*shape, AGENTS, features), dtype=np.float32)
    yes, t = np.ones((*shape, AGENTS), bool), np.tile(np.arange(LENGTH), (AT_ONCE, 1))
    classes = np.digitize(quantity, [-1.0, 1.0])
    return [
        np.zeros_like(t),
        episode,
        t,
        seen,
        np.zeros((*shape, AGENTS), np.int64),
        yes,
        yes,
        units,
        quantity,
        classes,
    ]


def decoded(path: Path, kind: str, shuffles: int) -> dict[str, float]:
    """Time, peak resident memory and the first agent's score; run in a process of its own."""
    start = time.perf_counter()
    with Recording.open(path) as recording:
        label = "quantity" if kind == "regression" else "class"
        result = decode(recording, site=SITE, label=label, n_shuffles=shuffles, memory_bytes=2**20, progress=False)
    score = result.of("agent_0")
    return {
        "seconds": time.perf_counter() - start,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "score": score.score,
        "observation": score.observation,
        "shuffled": score.shuffled,
        "p_value": score.p_value,
    }


def many_fits() -> None:
    """200 episodes of 25 steps, 64 units, 5 folds, 20 shuffles: the shared factorisation against separate fits."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((5000, 64)), rng.standard_normal((5000, 21))
    fold = np.repeat(np.arange(200) % 5, 25)
    start = time.perf_counter()
    score_labels(x, y, fold, "regression")
    ours = time.perf_counter() - start
    start = time.perf_counter()
    for k in range(5):
        for column in y.T:
            model = make_pipeline(StandardScaler(), RidgeCV(10.0 ** np.arange(-2, 5)))
            model.fit(x[fold != k], column[fold != k]).score(x[fold == k], column[fold == k])
    theirs = time.perf_counter() - start
    print(f"105 ridge fits: {ours:.2f} s; by RidgeCV one by one: {theirs:.2f} s ({theirs / ours:.0f} times)")


if __name__ == "__main__":
    main()
