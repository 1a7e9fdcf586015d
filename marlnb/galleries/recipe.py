"""Recipe: how an entry of a gallery is made, and what a person says about it; `recipe.yaml` in the entry's folder.

A recipe is data. It names what `marlnb train` or `marlnb.groundtruth` makes, and analyses of marlnb with their options.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from marlnb.codec import from_json
from marlnb.config import option
from marlnb.errors import ConfigError, unknown
from marlnb.text_files import read_yaml
from marlnb.training.runs.files import RECIPE as RECIPE
from marlnb.values import validate

SCORED_SEED = 10_000
"""Of the first scored episode; training runs, their evaluations and recordings have lower ones."""
ANALYSED_SEED = 20_000
"""Of the first episode behind the findings, unless the recipe says another one."""
Kind = Literal["cooperative", "competitive", "mixed", "planted circuit"]


@dataclass(frozen=True)
class Question:
    """One analysis, and what a person concluded from its result."""

    claim: str = option(help="the conclusion, a sentence without numbers; the card adds the result's own verdict")
    analysis: str = option(help="its name, one of `marlnb.galleries.findings.ANALYSES`")
    options: Mapping[str, Any] = option({}, help="of the analysis")
    expected: Mapping[str, tuple[float, float]] = option(
        {}, help="ranges for a rerun by position in the result's JSON, such as {influence.value: [0.5, 0.9]}"
    )

    def __post_init__(self) -> None:
        validate(self)


@dataclass(frozen=True)
class Circuit:
    """A planted circuit, as `marlnb.groundtruth.planted` takes it."""

    circuit: str = option(help="name of the circuit")
    network: Literal["mlp", "gru"] = option("mlp", help="kind of network")
    shared: bool = option(False, help="whether the agents share their weights")
    seed: int = option(0, help="of the weights", ge=0)

    def __post_init__(self) -> None:
        validate(self)


@dataclass(frozen=True)
class Recipe:
    """How an entry is made, and what a person says about it. One of train, circuit and command is given."""

    title: str = option(help="a few words")
    summary: str = option(help="what was trained, and what can be seen in it")
    kind: Kind = option(help="how the agents are rewarded, or planted circuit")
    train: str = option("", help="the words after `marlnb train`, without run=")
    circuit: Circuit | None = option(None, help="planted instead of trained")
    command: str = option("", help="a command of another library that makes the folder; it is shown, never run")
    keep: tuple[int, ...] = option((), help="iterations whose checkpoints are kept; none: all")
    keep_rows: int = option(100, help="about how many rows of metrics, and of evaluations, are kept", ge=2)
    episodes: int = option(500, help="episodes behind each score, from seed 10000", ge=2)
    recording: Mapping[str, Any] = option({}, help="options of `marlnb.record` for the small recording")
    analysed: Mapping[str, Any] = option({}, help="options of `marlnb.record` for the recording behind the findings")
    expected: Mapping[str, tuple[float, float]] = option(
        {}, help="by group or agent, the range in which the mean return of a rerun's last checkpoint must lie"
    )
    findings: tuple[Question, ...] = option((), help="analyses and conclusions")
    limits: tuple[str, ...] = option((), help="what it does not show")

    def __post_init__(self) -> None:
        validate(self)
        if sum(map(bool, (self.train, self.circuit, self.command))) != 1:
            raise ConfigError("a recipe has one of train, circuit and command")

    @property
    def overrides(self) -> list[str]:
        """The words of `train`."""
        try:
            return shlex.split(self.train)
        except ValueError as error:
            raise ConfigError(f"train cannot be split into words: {error}") from error

    def check_expected(self, names: Collection[str]) -> None:
        """Raises ConfigError: `expected` names something else than these groups and agents."""
        if unknown_names := [name for name in self.expected if name not in names]:
            raise ConfigError(f"expected: {unknown('group or agent', unknown_names[0], names)}")

    @staticmethod
    def read(folder: Path) -> Recipe:
        """The recipe in a folder. Raises ConfigError: there is none, or it is not valid; the message names the file."""
        file = folder / RECIPE
        try:
            return from_json(read_yaml(file), Recipe)
        except ConfigError as error:
            text = str(error)
            raise ConfigError(text if str(file) in text else f"{file}: {text}") from error
