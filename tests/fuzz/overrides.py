"""Overrides of an experiment at random: composed, each gives what was asked, or an error of marlnb's own.

An accepted experiment is written as JSON and as overrides, and read again; each plain number that was asked for is
where it was asked for; and the environment and the networks of one that is small enough are built.
"""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, fields, replace
from typing import Any

from marlnb.algorithms.configs.scripted import FrozenConfig
from marlnb.composition.overrides import overrides_of
from marlnb.config import ALGORITHMS, ENVIRONMENTS, MODELS
from marlnb.experiment import Experiment
from marlnb.training.learners import build_learners
from tests.fuzz.processes import Outcome
from tests.fuzz.values import MILD, TEXTS, Generator, any_text, changed_text, pick, value_like

ENVS = (
    *("mpe/simple", "mpe/simple_spread", "mpe/simple_tag", "mpe/simple_speaker_listener", "pettingzoo/multiwalker"),
    *("pettingzoo/custom", "vmas/balance", "torchrl/custom", "external/server", "matrix/climbing", "probe/continuous"),
)
BUILT = ("mpe/", "matrix/", "probe/")
PARTS = ("env", "algorithm", "model", "critic", "algorithms.agent", "models.agent", "critics.agent_0", "algorithms.a.b")
PLACES = {"algorithm": ("algorithms.agent",), "model": ("models.agent", "critic", "critics.agent_0")}
NEEDED = {
    "pettingzoo/custom": "entry_point=a:b",
    "torchrl/custom": "entry_point=a:b",
    "external/server": "groups={a:{observation:[2],actions:3}}",
}
PLAIN = re.compile(r"([a-z_]+(?:\.[a-z_0-9]+)*)=(-?[0-9]{1,18}(?:\.[0-9]{1,18})?(?:e-?[0-9]{1,2})?|true|false)")


class Overrides:
    """A target of random overrides, each input a JSON list of texts."""

    def __init__(self) -> None:
        self.algorithms = [name for name in ALGORITHMS.names() if ":" not in name]
        self.models = [name for name in MODELS.names() if ":" not in name]
        self.own = _options(Experiment)
        self.options = {
            **{("env", name): _options(ENVIRONMENTS.get(name)) for name in ENVS if name in ENVIRONMENTS},
            **{("algorithm", name): _options(ALGORITHMS.get(name)) for name in self.algorithms},
            **{("model", name): _options(MODELS.get(name)) for name in self.models},
        }
        self.envs = [name for part, name in self.options if part == "env"]

    def draw(self, generator: Generator) -> bytes:
        env, algorithm = pick(generator, self.envs), pick(generator, self.algorithms)
        model = pick(generator, self.models)
        chosen = {"env": env, "algorithm": algorithm, "model": model}
        words = [f"env={env}"] if generator.random() < 0.97 else []
        words += [f"{part}={chosen[part]}" for part in ("algorithm", "model") if generator.random() < 0.5]
        present = {part: name for part, name in chosen.items() if f"{part}={name}" in words}
        words += [f"env.{NEEDED[env]}"] if env in NEEDED else []
        words += [self._word(present, generator) for _ in range(int(generator.integers(1, 3)))]
        if generator.random() < 0.1:  # an option inside the last one
            key, _, value = words[-1].lstrip("+~").partition("=")
            words.append(f"{key}.{pick(generator, ('a', 'agent', 'agent.lr', '0'))}={pick(generator, (value, *MILD))}")
        if generator.random() < 0.03:
            words += _chain(generator)
        return json.dumps(words).encode()

    def outcome(self, data: bytes) -> Outcome:
        words = json.loads(data)
        experiment = Experiment.compose(*words)
        problem = _problem(experiment, words)
        return ("nonsense", problem) if problem else ("accepted", "")

    def _word(self, present: dict[str, str], generator: Generator) -> str:
        kind = generator.random()
        if kind < 0.1:
            word = f"{pick(generator, PARTS)}={pick(generator, (*self.models, *self.algorithms, *TEXTS))}"
        elif kind < 0.5 or not present:
            name, default = pick(generator, list(self.own.items()))
            word = f"{name}={value_like(default, generator)}"
        else:
            part = pick(generator, list(present))
            name, default = pick(generator, list(self.options[part, present[part]].items()) or [("x", None)])
            place = pick(generator, (part, part, part, *PLACES.get(part, (part,))))
            word = f"{place}.{name}={value_like(default, generator)}"
        word = pick(generator, ("+", "++", "~", "hydra.", "env.")) + word if generator.random() < 0.03 else word
        return changed_text(word, generator) if generator.random() < 0.15 else word


def _chain(generator: Generator) -> list[str]:
    """Interpolations, each of which contains the one before a few times."""
    start, stop, between = pick(generator, (("'", "'", ""), ("[", "]", ","), ("{a:", "}", ",b:")))
    n, uses = int(generator.integers(2, 40)), int(generator.integers(1, 4))
    values = [start + between.join([f"${{env.kwargs.a{k - 1}}}"] * uses) + stop for k in range(1, n)]
    return [f"env.kwargs.a0={any_text(generator)}", *(f"env.kwargs.a{k}={value}" for k, value in enumerate(values, 1))]


def _options(kind: Any) -> dict[str, Any]:
    """The defaults of its options, None where there is none."""
    return {item.name: None if item.default is MISSING else item.default for item in fields(kind)}


def _problem(experiment: Experiment, words: list[str]) -> str:
    """What is wrong with an accepted experiment; empty if nothing is."""
    data = experiment.to_json()
    if Experiment.from_json(json.loads(json.dumps(data, allow_nan=False))) != experiment:
        return "JSON gives another experiment"
    again = overrides_of(experiment)
    if Experiment.compose(*again) != experiment:
        return f"its own overrides give another experiment: {again}"
    repr(experiment), experiment._repr_html_(), experiment.unused_overrides(words)
    asked = {match[1]: match[2] for word in words if (match := PLAIN.fullmatch(word))}
    for key, text in asked.items():
        if not any(other != f"{key}={text}" and _touches(other, key) for other in words):
            value: Any = data
            for name in key.split("."):
                value = value.get(name, "nothing") if isinstance(value, dict) else "nothing"
            if key != "tuned" and value != json.loads(text):
                return f"{key}={text} was accepted, and it is {value!r}"
    _build(experiment)
    return ""


def _touches(word: str, key: str) -> bool:
    """Whether another override may change an option, or a part that it belongs to."""
    other = word.lstrip("+~").partition("=")[0]
    return f"{key}.".startswith(f"{other}.")


def _build(experiment: Experiment) -> None:
    """Builds the environment and the networks, if these are marlnb's own and no file is needed."""
    algorithms = [experiment.algorithm, *experiment.algorithms.values()]
    if not experiment.env.name.startswith(BUILT) or any(isinstance(part, FrozenConfig) for part in algorithms):
        return
    experiment.check_without_env()
    with experiment.env.build(2) as env:
        build_learners(replace(experiment, n_envs=2, max_iterations=None), env.spec, "cpu")
