"""Damaged files of a run folder: each raises an error that names it, unless a training run resumes without it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import marlnb as mnb
from marlnb.cli import main
from marlnb.disk import open_log
from marlnb.errors import CheckpointError, DiskError, MarlnbError, RunError
from marlnb.lab.run_page import run_page
from marlnb.training.policies.evaluation import evaluate
from marlnb.training.runs.files import stop_reason
from marlnb.training.runs.follow import RunFollower
from marlnb.training.runs.run import Run
from marlnb.training.train import resume, train
from marlnb.training.trainer import Trainer
from tests.training.another_user import shared_folder, without_root
from tests.training.toys import count_experiment

OPTIONS = ("checkpoint_every=2", "keep_checkpoints=0")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(count_experiment(*OPTIONS), tmp_path_factory.mktemp("trained") / "r", progress=False).path


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Run:
    """A copy of the trained run, which each test damages."""
    shutil.copytree(trained, tmp_path / "r")
    return Run.open(tmp_path / "r")


def _with_option(run: Run, name: str, before: int, after: int) -> Run:
    settings = run.path / "experiment.json"
    settings.write_text(settings.read_text().replace(f'"{name}": {before}', f'"{name}": {after}'))
    return Run.open(run.path)


def test_a_damaged_newest_checkpoint_stops_what_would_use_it(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    newest, older = run.checkpoints[-1], run.checkpoints[-2]
    (newest.path / "manifest.json").write_text("{")
    message = (
        f"the newest checkpoint of .*, {newest.iteration}, is damaged.*manifest.json.*can be read: .*{older.iteration}"
    )
    for use in (
        lambda: run.policies(),
        lambda: run.origin("last"),
        lambda: run.checkpoint("best:a"),
        lambda: evaluate(run.path, episodes=1),
        lambda: mnb.plan_recording(run.path, episodes=1),
        lambda: mnb.record(run.path, episodes=1, progress=False),
    ):
        with pytest.raises(CheckpointError, match=message):
            use()
    with pytest.raises(CheckpointError, match=f"has damaged ones: {newest.iteration}; readable: .*{older.iteration}"):
        mnb.record(run.path, checkpoint="all", episodes=1, progress=False)
    assert main(["evaluate", str(run.path), "--episodes", "1"]) == 2 and "is damaged" in capsys.readouterr().err
    assert evaluate(run.path, episodes=1, checkpoint=older.iteration).checkpoint == older.iteration
    assert f"{newest.iteration} (damaged)" in run._repr_html_()
    resume(run.path, frames=run.experiment.frames * 2, progress=False)
    assert any(f"checkpoint {newest.iteration} is damaged and was not used" in line for line in run.events())


def test_a_resume_skips_checkpoints_whose_tensors_are_damaged(run: Run) -> None:
    *_, oldest, older, newest = run.checkpoints
    for checkpoint in (older, newest):
        os.truncate(checkpoint.path / "tensors.bin", 100)
    resume(run.path, frames=run.experiment.frames * 2, progress=False)
    assert run.status()["state"] == "complete"
    for checkpoint in (older, newest):
        assert any(f"checkpoint {checkpoint.iteration} is damaged and was not used" in line for line in run.events())
    assert any(f"training from iteration {oldest.iteration}," in line for line in run.events())


@pytest.mark.parametrize("name", ["manifest.json", "tensors.bin"])
def test_what_is_saved_after_a_damaged_checkpoint_is_the_newest(run: Run, name: str) -> None:
    run = _with_option(run, "keep_checkpoints", 0, 1)
    *_, older, newest = run.checkpoints
    os.truncate(newest.path / name, 100)
    at = older.iteration + 1
    with Trainer.resume(Run.open(run.path)) as trainer:  # which saves where it is closed
        assert next(trainer).iteration == at
    assert run.checkpoint().iteration == evaluate(run, episodes=1).checkpoint == at
    assert (run.path / "checkpoints" / f"damaged-{newest.iteration}" / name).stat().st_size == 100
    with Trainer.resume(Run.open(run.path)) as trainer:
        assert trainer.iteration == at


@pytest.mark.parametrize("name", ["manifest.json", "tensors.bin"])
def test_a_run_whose_checkpoints_are_all_damaged_is_not_trained_from_the_start(run: Run, name: str) -> None:
    for checkpoint in run.checkpoints:
        (checkpoint.path / name).unlink()
    rows = len(run.metrics())
    with pytest.raises(CheckpointError, match=r"none of the checkpoints can be read .*delete them"):
        resume(run.path, frames=run.experiment.frames * 2, progress=False)
    assert len(run.metrics()) == rows


@pytest.mark.parametrize("gone", ["deleted", "emptied", "elsewhere"])
@pytest.mark.parametrize("every", [2, 50])  # some checkpoints; the last one alone
def test_a_run_whose_checkpoints_are_gone_is_not_trained_from_the_start(run: Run, gone: str, every: int) -> None:
    run = _with_option(run, "checkpoint_every", 2, every)
    checkpoints, files = run.path / "checkpoints", ("experiment.json", "metrics.jsonl", "status.json")
    shutil.rmtree(checkpoints)
    if gone == "emptied":
        checkpoints.mkdir()
    if gone == "elsewhere":  # on a disk that is not mounted now
        checkpoints.symlink_to(run.path / "absent")
    before, place = [(run.path / name).read_bytes() for name in files], checkpoints.resolve()
    message = (
        rf"was trained for {len(run.metrics())} iterations, but its checkpoints are gone: .* in {place}; copy them"
    )
    with pytest.raises(CheckpointError, match=message):
        resume(run.path, frames=run.experiment.frames * 2, progress=False)
    assert [(run.path / name).read_bytes() for name in files] == before
    (run.path / "metrics.jsonl").unlink()
    with Trainer.resume(run) as trainer:
        assert trainer.iteration == 0


def test_a_stopped_run_whose_only_checkpoint_is_gone_is_not_trained_from_the_start(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "r", count_experiment("checkpoint_every=50"))
    with Trainer(run.experiment, run) as trainer:
        next(trainer)
    (checkpoint,) = run.checkpoints  # of the stop
    shutil.rmtree(checkpoint.path)
    for _ in range(2):  # the first error deletes nothing
        with pytest.raises(CheckpointError, match="was trained for 1 iteration, but its checkpoints are gone"):
            Trainer.resume(run)
    assert len(run.metrics()) == 1


@pytest.mark.parametrize("iterations", [2, 3])  # before its first checkpoint was due; while it was written
def test_a_run_that_was_killed_before_its_first_checkpoint_starts_again(tmp_path: Path, iterations: int) -> None:
    run = Run.create(tmp_path / "r", count_experiment("checkpoint_every=3"))
    trainer = Trainer(run.experiment, run)
    for _ in range(iterations):
        next(trainer)
    for checkpoint in run.checkpoints:
        shutil.rmtree(checkpoint.path)
    trainer._saver.iteration = 0
    trainer.fail(KeyboardInterrupt())
    with Trainer.resume(run) as again:
        assert again.iteration == 0 and next(again).iteration == 1


@pytest.mark.parametrize("name", ["manifest.json", "tensors.bin"])
def test_a_resume_uses_no_older_checkpoint_instead_of_one_that_cannot_be_read(run: Run, name: str) -> None:
    newest, rows = run.checkpoints[-1], len(run.metrics())
    file = newest.path / name
    file.symlink_to(file.rename(run.path / "elsewhere"))  # a link is not followed
    with pytest.raises(CheckpointError, match=rf"{name}.* it is a link .* resume when it can be read") as caught:
        resume(run.path, frames=run.experiment.frames * 2, progress=False)
    assert "delete" not in str(caught.value) and len(run.metrics()) == rows
    (run.path / "elsewhere").replace(file)
    assert run.checkpoint() == newest


def test_a_changed_value_in_the_metrics_is_noticed(run: Run) -> None:
    path = run.path / "metrics.jsonl"
    lines = path.read_text().splitlines()
    number = len(lines) // 2
    row = json.loads(lines[number])
    lines[number] = lines[number].replace(f'"frames": {row["frames"]}', f'"frames": {row["frames"] + 1}')
    assert json.loads(lines[number])["frames"] == row["frames"] + 1
    path.write_text("\n".join(lines) + "\n")
    for read in (Run.open(run.path).metrics, RunFollower(run).read):
        with pytest.raises(RunError, match=rf"metrics.jsonl, line {number + 1}, is damaged: its values were changed"):
            read()


@pytest.mark.parametrize("line", ["3", "[1]", '"x"', "{}", '{"iteration": "3"}', '{"iteration": 3, "returns": 5}'] + [
    '{"iteration": 3, "returns": {"a": "high"}}', '{"iteration": 3, "returns": {"a": [1]}}',
    '{"iteration": 3, "learning": {"a": {"loss": "x"}}}', '{"iteration": 3, "frames": {"a": "b"}}', "[" * 9999,
    f'{{"iteration": 3, "returns": {{"a": {10**400}}}}}', f'{{"iteration": {10**400}}}',
], ids=lambda line: line[:60])  # fmt: skip
def test_a_row_that_is_not_numbers_is_damage(tmp_path: Path, line: str) -> None:
    run = Run.create(tmp_path / "r", count_experiment())
    (run.path / "metrics.jsonl").write_text(f'{{"iteration": 1}}\n{line}\n{{"iteration": 2}}\n')
    for read in (run.metrics, RunFollower(run).read):
        with pytest.raises(RunError, match=r"metrics.jsonl, line 2, is damaged: .*; delete this line"):
            read()


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, "interrupted"),
        ({"frames": 5}, "interrupted"),
        ({"state": 7, "frames": "many"}, "interrupted"),
        ({"state": "asleep", "limits": [1], "eta_s": "soon", "scores": 1}, "interrupted"),
        ({"state": "complete", "frames": None, "host": ["x"]}, "complete"),
        ({"state": "complete", "frames": 10**400, "eta_s": 10**400}, "complete"),
    ],
)
def test_a_status_without_state_or_with_other_types(tmp_path: Path, status: dict[str, object], state: str) -> None:
    run = Run.create(tmp_path / "r", count_experiment())
    (run.path / "status.json").write_text(json.dumps(status))
    assert run.status()["state"] == state and isinstance(run.status()["frames"], int)
    assert state in repr(run) and run._repr_html_()
    assert main(["info", str(run.path), "--json"]) == 0


@pytest.mark.parametrize("content", [b"", b'{"state": "run', b"\0\0", b"[1]", b"\xff"])
def test_a_run_whose_status_a_lost_node_left_damaged_resumes(run: Run, content: bytes) -> None:
    (run.path / "status.json").write_bytes(content)
    assert run.status() == {"state": "interrupted", "frames": 0}
    assert resume(run.path, progress=False).status()["state"] == "complete"


def test_folders_whose_names_are_not_whole_numbers_are_no_checkpoints(run: Run) -> None:
    iterations = [checkpoint.iteration for checkpoint in run.checkpoints]
    for name in ("²", "٣", "007", "-1"):
        (run.path / "checkpoints" / name).mkdir()
    assert [checkpoint.iteration for checkpoint in run.checkpoints] == iterations
    assert [each["iteration"] for each in run_page(run.path)["checkpoints"]] == iterations[::-1]
    with pytest.raises(CheckpointError, match="no checkpoint '²'"):
        run.checkpoint("²")


def test_a_log_in_another_encoding_is_shown(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "r", count_experiment())
    (run.path / "events.log").write_bytes("größer\n".encode("latin-1"))
    assert run.events() == ["gr�ßer".replace("ß", "�")]
    (run.path / "experiment.json").write_text("[" * 100_000)
    with pytest.raises(RunError, match="cannot be read"):
        Run.open(run.path)


def test_links_in_a_folder_show_and_change_no_other_file(run: Run, tmp_path: Path) -> None:
    """A folder from another person, with links to files of this user's."""
    secret, text = tmp_path / "secret", "mine\nand mine\n"
    secret.write_text(text)
    for name in ("events.log", "STOP", "lock", "metrics.jsonl"):
        (run.path / name).unlink(missing_ok=True)
        (run.path / name).symlink_to(secret)
    opened = Run.open(run.path)
    with pytest.raises(RunError, match=rf"events.log cannot be read: it is a link to {secret}; links in such folders"):
        opened.events()
    assert stop_reason(run.path) == ""
    for write in (
        lambda: resume(run.path, frames=2 * run.experiment.frames, progress=False),  # its lock
        lambda: opened.log_event("x"),
        lambda: opened.append_metrics({"iteration": 1}),
        lambda: open_log(run.path / "events.log"),  # as the output of a training run that a page resumes
    ):
        with pytest.raises(DiskError, match="cannot be written: it is a symbolic link"):
            write()
    assert secret.read_text() == text


@pytest.mark.parametrize(
    "name", ["experiment.json", "spec.json", "status.json", "metrics.jsonl", "manifest.json", "tensors.bin"]
)
def test_what_a_link_leads_to_is_not_read(run: Run, tmp_path: Path, name: str) -> None:
    """A link is refused even if the file that it leads to has the right content."""
    folder = run.checkpoints[-1].path if name in ("manifest.json", "tensors.bin") else run.path
    (folder / name).symlink_to((folder / name).rename(tmp_path / "elsewhere"))
    with pytest.raises(MarlnbError, match=rf"{name}.* it is a link to {tmp_path}/elsewhere; links in such folders"):
        opened = Run.open(run.path)
        assert opened.spec and opened.status() and opened.metrics().size and opened.policies()


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("lock", os.mkfifo, "lock is a pipe or a device, not a lock"),
        ("events.log", os.mkdir, "events.log cannot be written: it is a folder"),
        ("metrics.jsonl", os.mkfifo, "metrics.jsonl cannot be read: it is a pipe"),
    ],
)
def test_what_is_no_file_cannot_be_resumed(run: Run, name: str, make: Callable[[Path], None], message: str) -> None:
    (run.path / name).unlink(missing_ok=True)
    make(run.path / name)
    with pytest.raises(RunError, match=message) if name != "events.log" else pytest.raises(DiskError, match=message):
        resume(run.path, frames=2 * run.experiment.frames, progress=False)


def test_a_folder_that_cannot_be_searched_has_no_request_to_stop() -> None:
    """As for a moment on a network's disk; the training, and the thread that looks while it waits, look again."""
    with shared_folder() as shared:
        (shared / "STOP").touch()
        shared.chmod(0)
        with without_root():
            assert stop_reason(shared) is None
        shared.chmod(0o700)
        assert stop_reason(shared) == ""


@pytest.mark.timeout(60)
def test_a_pipe_as_a_request_to_stop_has_no_reason(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "STOP")
    assert stop_reason(tmp_path) == ""
