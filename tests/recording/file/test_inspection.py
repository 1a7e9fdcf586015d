"""Recordings that others made: opening and repairing one reads no other file, ends soon, and fails with an error."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

import marlnb as mnb
from marlnb.errors import AnalysisError, RecordingError
from marlnb.recording.capture.recorder import record
from marlnb.recording.file import inspected, inspection
from marlnb.recording.file.journal import ENTRY, HEADER, MAGIC, journal_of
from marlnb.recording.file.reader import Recording
from marlnb.recording.file.segments import segments_folder
from tests.recording.runs import LivesConfig, make_run

SITE = "activations/a/actor/hidden_1"
Change = Callable[[h5py.File, Path], None]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = make_run(tmp_path_factory.mktemp("others") / "run", LivesConfig(), centralised=False)
    options = {"episodes": 12, "n_envs": 4, "progress": False, "sites": "*/hidden_1"}
    record(run, name="one", **options).close()  # type: ignore[arg-type]
    record(run, name="many", segment_bytes=20_000, **options).close()  # type: ignore[arg-type]
    secret = run.path / "recordings" / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["x"] = np.arange(12.0)
    return secret.parent


@pytest.fixture
def folder(recordings: Path, tmp_path: Path) -> Path:
    inspection._intact.clear()
    return Path(shutil.copytree(recordings, tmp_path / "other" / "recordings"))


def secret_of(path: Path) -> str:
    return str(path.parent / "secret.h5")


def link_outside(file: h5py.File, path: Path) -> None:
    file["labels/x"] = h5py.ExternalLink(secret_of(path), "/x")


def store_outside(file: h5py.File, path: Path) -> None:
    file.create_dataset("labels/x", (12,), "f8", external=[(secret_of(path), 0, 96)])


def view_outside(file: h5py.File, path: Path) -> None:
    layout = h5py.VirtualLayout((12,), "f8")
    layout[:] = h5py.VirtualSource(secret_of(path), "labels/x", (12,))
    file.create_virtual_dataset("labels/x", layout)


def link_softly(file: h5py.File, path: Path) -> None:
    file["labels/x"] = h5py.SoftLink("/steps/t")


def loop(file: h5py.File, path: Path) -> None:
    file["activations/loop"] = file["activations"]


def claim(file: h5py.File, path: Path) -> None:
    file["steps/t"].resize(10**15, axis=0)


def claim_unallocated(file: h5py.File, path: Path) -> None:
    file.create_dataset("labels/x", (10**12,), "f8")


def mislabel(file: h5py.File, path: Path) -> None:
    """HDF5's own call for axis names ends the process on this file."""
    del file[SITE].attrs["DIMENSION_LABELS"]
    file[SITE].attrs["DIMENSION_LABELS"] = np.array(["row"], h5py.string_dtype())


def refer(file: h5py.File, path: Path) -> None:
    file[SITE].attrs["x"] = file["steps"].ref


def compress_with_a_plugin(file: h5py.File, path: Path) -> None:
    file.create_dataset("labels/x", data=np.arange(64.0), chunks=(64,), compression="lzf")


def nest(file: h5py.File, path: Path) -> None:
    file.create_group("labels/" + "/".join("x" * 40))


def crowd(file: h5py.File, path: Path) -> None:
    for number in range(300):
        file[SITE].attrs[f"x{number}"] = number


REFUSED: dict[Change, str] = {
    link_outside: "/labels/x is a link to another file",
    store_outside: "/labels/x is stored in another file",
    view_outside: "refers to another dataset|reads .*secret",
    link_softly: "a soft link",
    loop: "is linked twice",
    claim: "/steps/t claims 8,000,000,000,000,000 bytes",
    claim_unallocated: "/labels/x claims 8,000,000,000,000 bytes",
    mislabel: "DIMENSION_LABELS does not name the 3 axes",
    refer: "a type that no recording has",
    compress_with_a_plugin: "filter 32000",
    nest: "is deeper than 16 groups",
    crowd: "has 30. attributes",
}
ALSO_BY_REPAIR = (link_outside, store_outside, view_outside, claim, mislabel)


@pytest.mark.parametrize("change", REFUSED, ids=lambda change: change.__name__)
def test_what_no_recording_has_is_refused_before_rows_are_read(folder: Path, change: Change) -> None:
    path = folder / "one.h5"
    with h5py.File(path, "r+") as file:
        change(file, path)
    before = path.read_bytes()
    for verb in (Recording.open, mnb.repair) if change in ALSO_BY_REPAIR else (Recording.open,):
        with pytest.raises(RecordingError, match=REFUSED[change]) as caught:
            verb(path)
        assert str(path) in str(caught.value)
    assert path.read_bytes() == before and journal_of(path).exists() is False


def test_a_recording_of_another_process_opens(folder: Path) -> None:
    with Recording.open(folder / "one.h5") as one, Recording.open(folder / "many.h5") as many:
        assert len(segments := sorted(segments_folder(many.path).iterdir())) > 2
        assert np.allclose(one["a/actor/hidden_1"].to_numpy(), many["a/actor/hidden_1"].to_numpy(), atol=1e-5)
    assert {inspection._identity(path) for path in (one.path, many.path, *segments)} == set(inspection._intact)


@pytest.mark.parametrize("damage", ["attribute", "table", "text", "axis"])
def test_contents_that_no_recording_has_are_named(folder: Path, damage: str) -> None:
    path = folder / "one.h5"
    with h5py.File(path, "r+") as file:
        if damage == "attribute":
            file.attrs["every"] = "often"
        elif damage == "table":
            del file["episodes/length"]
        elif damage == "text":
            del file["agents/name"]
            file["agents/name"] = np.arange(4)
        else:
            file[SITE].attrs["agents"] = ["a_0"]
    with pytest.raises(RecordingError, match=f"{path} is damaged: .*`marlnb repair"):
        Recording.open(path)


@pytest.mark.parametrize(
    ("column", "change", "problem"),
    [
        ("steps/t", lambda values: values[:5], r"steps/t lacks rows: it has 5 of \d+"),
        ("episodes/length", lambda values: values + 10**6, r"lacks rows: it has \d+ of 1,0"),
        ("episodes/length", lambda values: 0 * values, "episodes without rows"),
    ],
)
def test_a_complete_recording_has_the_rows_of_its_episodes(
    folder: Path, column: str, change: Callable[[np.ndarray], np.ndarray], problem: str
) -> None:
    """One that was interrupted may lack some; in this one the loss would not be noticed."""
    path = folder / "one.h5"
    with h5py.File(path, "r+") as file:
        values = file[column][:]
        del file[column]
        file[column] = change(values)
    with pytest.raises(RecordingError, match=f"{path} is damaged: it is complete, but .*{problem}"):
        Recording.open(path)


@pytest.mark.parametrize("name", ["experiment", "spec", "settings"])
def test_texts_that_are_no_json_raise_when_they_are_read(folder: Path, name: str) -> None:
    path = folder / "one.h5"
    with h5py.File(path, "r+") as file:
        file.attrs[name] = "[" * 100_000
    with Recording.open(path) as recording, pytest.raises(RecordingError, match=f"{path} is damaged: .*{name}"):
        getattr(recording, name)


@pytest.mark.timeout(60)
def test_pipes_and_folders_are_no_recordings(folder: Path) -> None:
    pipe = folder / "pipe.h5"
    os.mkfifo(pipe)
    for verb in (Recording.open, mnb.repair):
        with pytest.raises(RecordingError, match="a pipe or a device"):
            verb(pipe)
        with pytest.raises(RecordingError, match="is a folder"):
            verb(folder)
    os.mkfifo(journal_of(folder / "one.h5"))
    os.mkfifo(segments_folder(folder / "many.h5") / "9999.h5")
    Recording.open(folder / "one.h5").close()
    Recording.open(folder / "many.h5").close()


def test_a_journal_that_writes_beyond_the_file_is_not_applied(folder: Path) -> None:
    path = folder / "one.h5"
    body = ENTRY.pack(2**50, 4) + b"evil"
    journal_of(path).write_bytes(HEADER.pack(MAGIC, len(body), zlib.crc32(body)) + body)
    size = path.stat().st_size
    with pytest.raises(RecordingError, match="writes beyond its end"):
        Recording.open(path)
    assert path.stat().st_size == size


@pytest.mark.parametrize("kind", ["a link", "no recording", "a terabyte"])
def test_a_journal_changes_no_other_file(folder: Path, kind: str) -> None:
    """It is applied before HDF5 sees the file: a link to ~/.bashrc with a journal next to it would run any command."""
    path, other = folder / "theirs.h5", folder.parent / "bashrc"
    other.write_text("alias ls=ls\n")
    if kind == "a link":
        path.symlink_to(other)
    elif kind == "no recording":
        os.link(other, path)
    else:
        shutil.copy(folder / "one.h5", path)
    body = ENTRY.pack(0, 4) + b"evil"
    before = path.read_bytes()
    for verb in (Recording.open, mnb.repair):
        journal_of(path).write_bytes(HEADER.pack(MAGIC, len(body), zlib.crc32(body)) + body)
        if kind == "a terabyte":
            os.truncate(journal_of(path), 2**40)
        with pytest.raises(RecordingError, match=r"would change the file it leads to|no HDF5 file|at most .* are read"):
            verb(path)
    assert other.read_text() == "alias ls=ls\n" and path.read_bytes() == before


def test_segments_lie_below_the_recording(folder: Path) -> None:
    path = folder / "many.h5"
    segment = sorted(segments_folder(path).iterdir())[0]
    outside = folder.parent / "elsewhere.h5"
    segment.rename(outside)
    segment.symlink_to(outside)
    with pytest.raises(RecordingError, match="not below its folder"):
        Recording.open(path)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("import time; time.sleep(60)", "took longer than 1 s"),
        ("import os; os.kill(os.getpid(), 24)", "took longer than 2 s"),  # its time is used
        ("import os; os.kill(os.getpid(), 11)", r"crashed while reading its structure \(signal 11\)"),
        ("raise SystemError('no h5py')", "cannot be inspected: .*no h5py"),
    ],
)
def test_a_crash_or_a_hang_of_hdf5_is_an_error(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, expected: str
) -> None:
    (tmp_path / "walk.py").write_text(program)
    monkeypatch.setattr(inspection, "PROGRAM", tmp_path / "walk.py")
    monkeypatch.setattr(inspection, "BASE_TIMEOUT_S", 1.0)
    with pytest.raises(RecordingError, match=expected):
        Recording.open(folder / "one.h5")


def test_what_this_process_wrote_or_inspected_needs_no_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Recording.open(folder / "one.h5").close()
    copy = mnb.extract(folder / "one.h5", folder / "part.h5", episodes=[0, 1])
    copy.close()
    monkeypatch.setattr(inspection, "PROGRAM", Path("/nowhere"))
    Recording.open(folder / "one.h5").close()
    Recording.open(copy.path).close()
    os.utime(copy.path, ns=(1, 1))  # it could be another file now
    with pytest.raises(RecordingError, match="cannot be inspected"):
        Recording.open(copy.path)


def test_attributions_and_dictionaries_are_inspected(folder: Path) -> None:
    from marlnb.analysis.attribution import storage
    from marlnb.analysis.dictionaries.dictionary import Dictionary

    path = folder / "x.h5"
    with h5py.File(path, "w") as file:
        file["weights"] = h5py.ExternalLink(secret_of(path), "/x")
    for read in (storage.read, Dictionary.load):
        with pytest.raises(AnalysisError, match="a link to another file"):
            read(path)


def test_a_later_kernel_inspects_a_file_again_only_if_it_changed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks: list[list[Path]] = []
    real = inspection._run_walks

    def counted(paths: list[Path], *, damaged: bool) -> list[dict[str, object]]:
        walks.append(list(paths))
        return real(paths, damaged=damaged)

    monkeypatch.setattr(inspection, "_run_walks", counted)
    monkeypatch.setenv("MARLNB_DATA_DIR", str(tmp_path / "cache"))
    path, notes = folder / "one.h5", tmp_path / "cache" / "inspected"
    for expected_walks, expected_notes, prepare in (
        (1, 0, lambda: None),  # it changed a moment ago
        (2, 1, lambda: monkeypatch.setattr(inspected, "MIN_AGE_S", -1.0)),
        (2, 1, lambda: None),  # the note of an earlier kernel
        (
            3,
            2,
            lambda: os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns)),
        ),  # same time, other change
    ):
        inspection._intact.clear()
        prepare()
        Recording.open(path).close()
        assert (len(walks), len(list(notes.glob("*")) if notes.is_dir() else [])) == (expected_walks, expected_notes)
    monkeypatch.setenv("MARLNB_DATA_DIR", "/dev/null")
    inspection._intact.clear()
    Recording.open(path).close()
    assert len(walks) == 4
