from __future__ import annotations

import dataclasses
import json
import math
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import papermill
import pytest

from marlnb.codec import from_json, to_json
from marlnb.config import option
from marlnb.errors import ConfigError, UnknownNameError
from marlnb.experiment import Experiment
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, LabelSpec, ObservationSpec
from marlnb.values import describe, validate


@dataclass(frozen=True)
class Inner:
    word: str = option("a", help="a word")


@dataclass(frozen=True)
class Everything:
    """One field of each kind that a config may have."""

    must: int = option(help="no default", ge=1, le=10)
    flag: bool = option(True, help="")
    rate: float = option(0.5, help="", unit="seconds", gt=0, lt=math.inf)
    limit: float = option(math.inf, help="", le=math.inf)
    name: str = option("x", help="")
    maybe: float | None = option(None, help="")
    ground: Literal["flat", "steep"] = option("flat", help="")
    sizes: tuple[int, ...] = option((64, 64), help="", ge=1)
    pair: tuple[float, str] = option((0.0, "m"), help="")
    colours: tuple[str, ...] = option((), help="", choices=("red", "blue"))
    by_name: Mapping[str, tuple[int, ...]] = option({}, help="")
    free: Mapping[str, Any] = option({}, help="")
    inner: Inner = option(Inner(), help="")

    def __post_init__(self) -> None:
        validate(self)


WRITTEN = {
    "must": 3,
    "flag": False,
    "rate": 0.1,
    "limit": "-Infinity",
    "name": "it's; $HOME \u2603",
    "maybe": 2.5,
    "ground": "steep",
    "sizes": [1, 2, 3],
    "pair": [1.5, "km"],
    "colours": ["blue"],
    "by_name": {"a": [1], "b": []},
    "free": {"deep": {"list": [1, [2.5, None], {"k": True}]}},
    "inner": {"word": "b"},
}
READ = Everything(
    must=3,
    flag=False,
    rate=0.1,
    limit=-math.inf,
    name="it's; $HOME \u2603",
    maybe=2.5,
    ground="steep",
    sizes=(1, 2, 3),
    pair=(1.5, "km"),
    colours=("blue",),
    by_name={"a": (1,), "b": ()},
    free={"deep": {"list": [1, [2.5, None], {"k": True}]}},
    inner=Inner("b"),
)


def test_lists_of_alternatives_in_words() -> None:
    words = {
        tuple[int | str, ...]: "a list of whole numbers or texts",
        tuple[tuple[int, ...], ...]: "a list of lists of whole numbers",
        tuple[int | None, ...]: "a list",
        tuple[Any, ...]: "a list",
    }
    assert {annotation: describe(annotation) for annotation in words} == words


def test_every_kind_of_field_is_written_and_read_as_by_hand() -> None:
    assert to_json(READ) == WRITTEN
    assert from_json(WRITTEN, Everything) == READ
    assert from_json(json.loads(json.dumps(WRITTEN, allow_nan=False)), Everything) == READ
    assert from_json({"must": 1}, Everything) == Everything(must=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rat": 1}, r"no option 'part.rat'; did you mean 'part.rate'"),
        ({"must": "3"}, r"part.must must be a whole number; got '3'"),
        ({"must": 2.5}, r"part.must must be a whole number; got 2.5"),
        ({"must": True}, r"part.must must be a whole number; got True"),
        ({"must": 0}, r"part.must must be at least 1; got 0"),
        ({"must": 11}, r"part.must must be at most 10; got 11"),
        ({"flag": 1}, r"part.flag must be true or false; got 1"),
        ({"flag": "false"}, r"part.flag must be true or false; got 'false'"),
        ({"rate": 0}, r"part.rate must be more than 0 seconds; got 0.0"),
        ({"rate": "Infinity"}, r"part.rate must be less than inf seconds; got inf"),
        ({"rate": math.nan}, r"part.rate must be a number; got nan"),
        ({"rate": "fast"}, r"part.rate must be a number; got 'fast'"),
        ({"rate": None}, r"part.rate must be a number; got None"),
        ({"maybe": "x"}, r"part.maybe must be a number"),
        ({"name": 3}, r"part.name must be a text; got 3"),
        ({"ground": "step"}, r"part.ground: no choice 'step'; did you mean 'steep'"),
        ({"sizes": 64}, r"part.sizes must be a list of whole numbers; got 64"),
        ({"sizes": [64, 0]}, r"part.sizes\[1\] must be at least 1; got 0"),
        ({"sizes": "64"}, r"part.sizes must be a list of whole numbers; got '64'"),
        ({"pair": [1.0]}, r"part.pair must have 2 values; got 1"),
        ({"colours": ["red", "bleu"]}, r"part.colours\[1\]: no choice 'bleu'; did you mean 'blue'"),
        ({"by_name": {"a": ["b"]}}, r"part.by_name.a\[0\] must be a whole number; got 'b'"),
        ({"free": {"a": math.inf}}, r"part.free.a must be a finite number; got"),
        ({"free": {"a": object()}}, r"part.free.a must be plain data"),
        ({"inner": {"wrd": "b"}}, r"no option 'part.inner.wrd'; did you mean 'part.inner.word'"),
        ({"inner": 3}, r"part.inner must be a mapping of options; got 3"),
    ],
)
def test_what_is_wrong_is_named_with_its_path_and_the_nearest(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_json({**WRITTEN, **change}, Everything, "part")


def test_an_option_without_default_must_be_given() -> None:
    with pytest.raises(ConfigError, match=r"must has no default and must be given; no default"):
        from_json({}, Everything)


def test_dataclasses_made_in_python_are_checked_and_settled_in_the_same_way() -> None:
    made = Everything(
        must=np.int64(4),
        rate=1,
        sizes=[5, np.int32(6)],
        pair=[1, "m"],
        free={"a": (1, (2,))},  # type: ignore[arg-type]
    )
    assert made == Everything(must=4, rate=1.0, sizes=(5, 6), pair=(1.0, "m"), free={"a": [1, [2]]})
    assert [type(made.must), type(made.rate), type(made.sizes)] == [int, float, tuple]
    assert from_json(json.loads(json.dumps(to_json(made))), Everything) == made
    assert Everything(must=1e1).must == 10  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"Everything.must must be at least 1; got 0"):
        Everything(must=0)
    with pytest.raises(ConfigError, match=r"Everything.ground"):
        dataclasses.replace(READ, ground="step")  # type: ignore[arg-type]
    assert dataclasses.replace(READ, must=5).must == 5


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match="NaN"):
        to_json({"a": math.nan})
    with pytest.raises(ConfigError, match="object"):
        to_json([object()])


def test_env_spec_with_unbounded_actions_round_trips() -> None:
    spec = EnvSpec(
        name="mine",
        groups=(
            GroupSpec(
                "walker",
                ("walker_0", "walker_1"),
                ObservationSpec((2,), names=("x", "y")),
                ActionSpec("continuous", low=(-math.inf, -1.0), high=(math.inf, 1.0)),
            ),
            GroupSpec("talker", ("t",), ObservationSpec((3, 4), "uint8"), ActionSpec("multi_discrete", n=(2, 3)), True),
        ),
        state_shape=(5,),
        max_steps=25,
        labels=(LabelSpec("goal", "walker", ("red", "green")),),
    )
    assert from_json(json.loads(json.dumps(to_json(spec), allow_nan=False)), EnvSpec) == spec


def experiment() -> Experiment:
    return Experiment.compose(
        "env=pettingzoo/multiwalker",
        'env.kwargs={n_walkers:2,note:"it\'s; $HOME `x` %d \\ ,"}',
        "env.groups={left:[walker_0],right:[walker_1]}",
        "tuned=false",
        "algorithm=mappo",
        "algorithm.lr=3e-4",
        "algorithms.left=ippo",
        "algorithms.left.gamma=0.9",
        "model=gru",
        "models.right=mlp",
        "models.right.hidden=[16]",
        "critic=mlp",
        "critics.left.hidden=[7,9]",
        "target_return=-8.25",
        "loggers=[tensorboard]",
        "frames=12_345",
    )


def test_the_hops_leave_an_experiment_unchanged(tmp_path: Path) -> None:
    """Widget, papermill parameter, SLURM argument and environment, checkpoint manifest, HDF5 attribute."""
    given = experiment()
    assert given.env.kwargs["note"] == "it's; $HOME `x` %d \\ ,"  # type: ignore[attr-defined]
    widget = Experiment.from_json(given.to_json())

    in_notebook = Experiment.from_json(json.loads(_through_papermill(json.dumps(widget.to_json()), tmp_path)))
    in_job = Experiment.from_json(json.loads(_through_shell(json.dumps(in_notebook.to_json()))))

    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"experiment": in_job.to_json()}, indent=2), encoding="utf-8")
    in_checkpoint = Experiment.from_json(json.loads(manifest.read_text(encoding="utf-8"))["experiment"])

    with h5py.File(tmp_path / "recording.h5", "w") as file:
        file.attrs["experiment"] = json.dumps(in_checkpoint.to_json())
    with h5py.File(tmp_path / "recording.h5") as file:
        in_recording = Experiment.from_json(json.loads(file.attrs["experiment"]))

    for arrived in (widget, in_notebook, in_job, in_checkpoint, in_recording):
        assert arrived == given
        assert json.dumps(arrived.to_json()) == json.dumps(given.to_json())


def _through_papermill(text: str, folder: Path) -> str:
    """The parameter as the injected cell assigns it."""
    cell = papermill.parameterize.parameterize_notebook(_notebook(folder), {"experiment": text}).cells[0]
    namespace: dict[str, str] = {}
    exec(cell.source, namespace)
    return namespace["experiment"]


def _notebook(folder: Path) -> Any:
    code = {"cell_type": "code", "id": "a", "execution_count": None, "metadata": {}, "outputs": [], "source": ""}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {"cells": [code], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    path = folder / "notebook.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return papermill.iorw.load_notebook_node(str(path))


def _through_shell(text: str) -> str:
    """As a batch script hands it on: quoted, by argument and by environment variable."""
    script = "import os, sys; assert sys.argv[1] == os.environ['EXPERIMENT']; sys.stdout.write(sys.argv[1])"
    quoted = shlex.quote(text)
    line = f"export EXPERIMENT={quoted}; exec {shlex.quote(sys.executable)} -c {shlex.quote(script)} {quoted}"
    return subprocess.run(["bash", "-c", line], check=True, capture_output=True, text=True, timeout=120).stdout


def test_an_experiment_is_written_by_name_and_options() -> None:
    written = experiment().to_json()
    assert written["env"]["name"] == "pettingzoo/multiwalker"
    assert written["algorithm"]["name"] == "mappo"
    assert written["algorithms"]["left"]["name"] == "ippo"
    assert written["models"]["right"]["hidden"] == [16]
    assert written["critics"]["left"] == {**written["critic"], "hidden": [7, 9]}
    assert written["frames"] == 12345


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithm": {"name": "mapo"}}, r"algorithm: no algorithm 'mapo'; did you mean 'mappo'"),
        ({"algorithm": {"name": "mappo", "lrr": 1}}, r"'algorithm.lrr' of algorithm 'mappo'; did you mean 'algorithm"),
        ({"models": {"a": {"name": "mlp", "hiden": [1]}}}, r"'models.a.hiden'.*; did you mean 'models.a.hidden'"),
        ({"algorithm": {"lr": 1.0}}, r"algorithm: no name; valid: "),
        ({"algorithm": {"name": 3}}, r"algorithm.name must be a text; got 3"),
        ({"loggers": ["wand"]}, r"loggers\[0\]: no choice 'wand'; did you mean 'wandb'"),
        ({"framse": 1}, r"no option 'framse'; did you mean 'frames'"),
    ],
)
def test_a_damaged_experiment_says_where(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Experiment.from_json({**experiment().to_json(), **change})


def test_an_older_file_that_lacks_an_option_reads_with_its_default() -> None:
    written = experiment().to_json()
    del written["threads"], written["algorithm"]["gamma"]
    assert Experiment.from_json(written) == experiment()


def test_an_unregistered_environment_is_an_unknown_name() -> None:
    with pytest.raises(UnknownNameError, match=r"env: no environment 'pettingzoo/multiwalkr'; did you mean"):
        Experiment.from_json({**experiment().to_json(), "env": {"name": "pettingzoo/multiwalkr"}})
