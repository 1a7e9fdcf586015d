"""YAML files at random, for every reader that marlnb has: variants, experiments, benchmarks, profiles, parameters.

An input is JSON: the reader, and the file's bytes as Latin-1.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from marlnb.batch.benchmark.spec import BenchmarkSpec, read_spec
from marlnb.batch.profile import Profile, find_profile
from marlnb.batch.sweep.grammar import values_of_file
from marlnb.experiment import Experiment
from marlnb.widgets.forms.load_experiment import load_experiment
from tests.fuzz.processes import Outcome
from tests.fuzz.values import TEXTS, Generator, changed_bytes, changed_text, pick, value_like

FILES = {
    "env": "defaults: [mpe/simple_spread]\nmax_cycles: 50\nn_agents: 4\n",
    "algorithm": "name: mappo\nlr: 2e-3\nepochs: 3\ngamma: ${oc.decode:0.5}\n",
    "model": "defaults:\n  - mlp\n  - _self_\nhidden: [8, 16]\nactivation: tanh\n",
    "experiment": "defaults:\n  - override /env: mpe/simple_tag\n  - algorithm: ippo\nframes: 1_000\n"
    "env:\n  max_cycles: 9\n"
    "algorithms:\n  adversary: {name: mappo, lr: 1e-4}\nmodels: {agent_0: gru}\nseed: 3\nlr: &lr 0.1\n",
    "benchmark": "algorithms:\n  ippo: [algorithm.epochs=5]\n  mine: [algorithm=mappo, model=gru]\nenvironments:\n"
    "  mpe/simple_spread: []\n  mpe/x: [env=mpe/simple_spread, env.max_cycles=9]\nseeds: 2\nevaluations: 10\n"
    "overrides: [frames=1_000_000, n_envs=64]\ncompare: []\n",
    "profile": 'executor: slurm\ncores: 4\nmemory_gb: 2.5\ntime_limit: "20:00:00"\noptions: [--exclusive]\n'
    "environment: {A: b}\nwarn_s: 60\noffline: false\n",
    "parameters": "seed: [0, 1, 2]\nframes: 1_000_000\nname: text\nhidden: [[64], [8]]\nlr: 1e-3\nday: 2024-02-30\n",
    "load": "env: {name: mpe/simple_spread, max_cycles: 9}\nalgorithm: {name: ippo}\nmodel: {name: mlp}\nseed: 1\n",
}
LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi")
)
SNIPPETS = (
    *(
        LAUGHS,
        f"hidden: [{'[' * 200}{']' * 200}]\n",
        "x: " * 1000 + "1\n",
        "- " * 1000 + "a\n",
        "&a [*a]\n",
        "a: &a {b: *a}\n",
    ),
    *("<<: {seed: 1}\n", "<<: *lr\n", "frames: *lr\n", "seed: *nothing\n", "!!python/object/apply:os.system [id]\n"),
    *("a: !!python/name:os.system\n", "a: !!binary aGk=\n", "a: !!set {a, b}\n", "a: !!omap [a: 1]\n", "a: !mine 1\n"),
    *(
        "---\n",
        "...\n",
        "%YAML 1.2\n---\n",
        "%TAG ! tag:x\n",
        "\t",
        "\ufeff",
        "\x00",
        "? [a, b]\n: 1\n",
        "? {a: 1}\n: 1\n",
    ),
    *(
        "1: 2\n",
        "~: 1\n",
        "true: 1\n",
        "1.5: 1\n",
        "seed: 0\nseed: 1\n",
        "2024-13-45\n",
        "a: 2024-13-45\n",
        "a: 12:30:99\n",
    ),
    *(
        f"seed: {'9' * 5000}\n",
        "seed: .inf\n",
        "seed: .nan\n",
        "lr: 1e400\n",
        "seed: 0o17\n",
        "seed: 0b102\n",
        "a: |\n  x\n",
    ),
    *(
        "a: >-\n",
        "a: 'it''s\n",
        'a: "\\uD800"\n',
        'a: "\\x"\n',
        "a: ${b}\nb: ${a}\n",
        "a: ${oc.env:NO}\n",
        "a: ${oc.create:x}\n",
    ),
    *(
        "name: evil:Env\n",
        "name: 3\n",
        "name: [mlp]\n",
        "name: null\n",
        "defaults: 3\n",
        "defaults: [a, b]\n",
        "defaults: [{}]\n",
    ),
    *(
        "defaults: [[mlp]]\n",
        "tuned: maybe\n",
        "algorithms: 3\n",
        "env: 3\n",
        "env: [a]\n",
        "models: {a: {b: {c: 1}}}\n",
    ),
    *("groups: {all: [agent_0]}\n", "loggers: tensorboard\n", "seeds: -1\n", "seeds: [1, 1]\n", "seeds: 1e9\n"),
    *("seeds: 1000000000\n", "evaluations: 0\n", "compare: [/dev/zero]\n", "compare: [{}]\n", "overrides: frames=1\n"),
)
COMPOSED = ("env", "algorithm", "model", "experiment")
MAX_RUNS = 50


class YamlFiles:
    """A target of YAML files, each of one reader."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def draw(self, generator: Generator) -> bytes:
        reader = pick(generator, list(FILES))
        text = FILES[reader]
        for _ in range(int(generator.integers(1, 3))):
            text = self._changed(text, generator)
        content = text.encode("utf-8", errors="surrogatepass")
        content = changed_bytes(content, generator) if generator.random() < 0.08 else content
        return json.dumps({"reader": reader, "file": content.decode("latin-1")}).encode()

    def outcome(self, data: bytes) -> Outcome:
        given = json.loads(data)
        reader, content = given["reader"], given["file"].encode("latin-1")
        path = self.folder / (f"{reader}/x.yaml" if reader in COMPOSED else f"{reader}.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        try:
            problem = self._read(reader, path)
        finally:
            path.unlink()
        return ("nonsense", problem) if problem else ("accepted", "")

    def _changed(self, text: str, generator: Generator) -> str:
        kind = generator.random()
        lines = text.splitlines(keepends=True) or [""]
        number = int(generator.integers(len(lines)))
        if kind < 0.2:
            lines.insert(number, pick(generator, SNIPPETS))
        elif kind < 0.6:
            key, colon, value = lines[number].partition(":")
            lines[number] = f"{key}{colon} {value_like(_scalar(value), generator)}\n"
        elif kind < 0.7:
            lines[number] = pick(generator, (" ", "  ", "\t", "- ")) + lines[number]
        else:
            return changed_text(text, generator, (*TEXTS, *SNIPPETS, ": ", "\n", "  ", "- "))
        return "".join(lines)

    def _read(self, reader: str, path: Path) -> str:
        """Reads a file; what is wrong with the answer."""
        read = {"benchmark": _benchmark, "profile": _profile, "parameters": _parameters, "load": _load}
        if reader in read:
            return read[reader](path)
        words = ["experiment=x"] if reader == "experiment" else [f"{reader}=x"]
        words += [] if reader in ("env", "experiment") else ["env=mpe/simple_spread"]
        return _round_trip(Experiment.compose(*words, config_dir=str(self.folder)))


def _scalar(text: str) -> Any:
    """The value of a line of YAML; its text where it is none."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return text.strip()


def _round_trip(experiment: Experiment) -> str:
    data = json.loads(json.dumps(experiment.to_json(), allow_nan=False))
    return "" if Experiment.from_json(data) == experiment else "JSON gives another experiment"


def _benchmark(path: Path) -> str:
    spec = read_spec(path)
    if BenchmarkSpec.from_json(json.loads(json.dumps(spec.to_json(), allow_nan=False))) != spec:
        return "JSON gives another benchmark"
    for run in spec.runs()[:MAX_RUNS]:
        if problem := _round_trip(run.experiment):
            return problem
    return ""


def _profile(path: Path) -> str:
    profile = find_profile(str(path))
    same = Profile.from_json(json.loads(json.dumps(profile.to_json(), allow_nan=False))) == profile
    return "" if same else "JSON gives another profile"


def _parameters(path: Path) -> str:
    values = values_of_file(path)
    return "" if all(isinstance(name, str) for name in values) else "a name is no text"


def _load(path: Path) -> str:
    experiment: Any = load_experiment(str(path))
    if experiment.unloaded:
        return ""
    return _round_trip(experiment)
