"""Every public function that reads a recording takes its path as well."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import marlnb as mnb
from marlnb.errors import RecordingError
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.opened import opened_if_file, opened_recording
from tests.recording.runs import LivesConfig, make_run
from tests.training.another_user import shared_folder, without_root

NAMES = ("recording", "recordings", "views", "policy_source", "source")


def readers() -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Name, function and parameter of what reads a recording."""
    for name in dir(mnb):
        function = getattr(mnb, name)
        if inspect.isfunction(function):
            for parameter in inspect.signature(function).parameters.values():
                if parameter.name in NAMES and "Recording" in str(parameter.annotation):
                    yield name, function, parameter.name


READERS = tuple(readers())


def call(function: Callable[..., Any], name: str, value: object) -> Any:
    """With None for every other parameter that is needed: the recording is opened before they are looked at."""
    parameters = inspect.signature(function).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    options: dict[str, Any] = dict.fromkeys(needed)
    if "path" in needed:
        options["path"] = "unused.h5"
    if function is mnb.development:
        options["measure"] = "similarity"
    return function(**{**options, name: value})


def test_the_functions_are_known() -> None:
    assert len(READERS) >= 27 and {"decode", "attribute", "influence", "trace", "animate"} <= {r[0] for r in READERS}


@pytest.mark.parametrize(("name", "function", "parameter"), READERS, ids=[reader[0] for reader in READERS])
def test_a_path_without_a_recording(name: str, function: Callable[..., Any], parameter: str, tmp_path: Path) -> None:
    for path in (tmp_path / "x.h5", str(tmp_path / "x.h5")):
        given: Any = path if name != "merge" else [path]
        with pytest.raises(RecordingError, match=r"there is no recording .*x\.h5"):
            call(function, parameter, given)


@pytest.mark.parametrize("function", [opened_recording, opened_if_file, mnb.repair])
def test_a_recording_below_a_folder_that_may_not_be_read(function: Callable[[Path], object]) -> None:
    with shared_folder() as shared:
        (shared / "locked").mkdir(mode=0)
        path = shared / "locked" / "recordings" / "x.h5"
        with without_root(), pytest.raises(RecordingError, match=r"x\.h5 .*may not be (read|written to)"):
            function(path)
        (shared / "locked").chmod(0o700)


def test_neither_a_recording_nor_a_path() -> None:
    with pytest.raises(RecordingError, match=r"expected a recording or its path.*; got int 7"):
        mnb.decode(7, site="a", label="b")  # type: ignore[arg-type]


def test_a_path_gives_what_the_recording_gives_and_leaves_the_file_closed(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", LivesConfig())
    with record(run, sites="*/actor/*", episodes=8, n_envs=4, progress=False) as recording:
        path = recording.path
        assert opened_recording(recording) is recording
        options = {"site": "a/actor/hidden_1", "agent": "a_0"}
        expected = mnb.tuning(recording, label="t", n_shuffles=20, n_bootstrap=20, **options).table()
        table = mnb.to_pandas(recording)
        length = len(mnb.animate(recording, 1))
    for given in (path, str(path)):
        assert mnb.tuning(given, label="t", n_shuffles=20, n_bootstrap=20, **options).table().equals(expected)
        assert mnb.to_pandas(given).equals(table)
        assert len(mnb.animate(given, 1)) == length
    views = [(path, "a/actor/hidden_1", "a_0"), (path, "a/actor/hidden_1", "a_2")]
    np.testing.assert_allclose(mnb.similarity_matrix(views).values.diagonal(), 1.0)
    with h5py.File(path, "r+") as file:  # which HDF5 refuses while it is open anywhere
        file.flush()
    mnb.backfill(path, "a/critic/*").close()
    assert any(site.startswith("a/critic/") for site in opened_recording(path).sites)
