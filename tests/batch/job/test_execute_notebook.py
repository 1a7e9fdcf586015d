"""The kernel of a job: what it is deaf to, with whom it dies, and what its death is taken for."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from marlnb.batch.job.job import Job
from marlnb.batch.job.kernel_client import KernelClient
from marlnb.batch.job.run_job import execute_job
from marlnb.batch.job.training_progress import active_training
from marlnb.training.runs.files import read_lines
from tests.batch.jobs import TRAINING, make, run, start, texts, wait_for

SLEEP = "import os, time\nprint('kernel', os.getpid(), flush=True)\ntime.sleep(600)"


def kernel_of(job: Job) -> int:
    lines = job.log.read_text().splitlines() if job.log.exists() else []
    return next((int(line.split()[1]) for line in lines if line.startswith("kernel ")), 0)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_kernel_is_deaf_to_a_schedulers_signals_and_dies_with_its_job(tmp_path: Path) -> None:
    job = make(tmp_path / "job", SLEEP)
    process = start(job)
    try:
        kernel = wait_for(lambda: kernel_of(job), process)
        lines = Path(f"/proc/{kernel}/status").read_text().splitlines()
        ignored = int(next(line for line in lines if line.startswith("SigIgn")).split()[1], 16)
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
            assert ignored >> (number - 1) & 1
            os.kill(kernel, number)
        assert is_alive(kernel)
    finally:
        process.kill()
        process.wait()
    wait_for(lambda: not is_alive(kernel))
    assert job.status().state == "interrupted" and "killed" in job.status().reason


@pytest.mark.parametrize(
    ("code", "exit_code", "state", "reason"),
    [
        ("os.kill(os.getpid(), 9)", os.EX_TEMPFAIL, "interrupted", "the kernel died (killed, or out of memory)"),
        ("os._exit(7)", 1, "failed", "cell 3: the kernel ended with exit code 7"),
    ],
)
def test_a_kernel_that_dies(tmp_path: Path, code: str, exit_code: int, state: str, reason: str) -> None:
    job = make(tmp_path / "job", f"import os\nprint('before', flush=True)\n{code}", "print('never')", n=2)
    assert run(job) == exit_code
    assert (job.status().state, job.status().reason) == (state, reason)


def test_widgets_are_kept_the_notebook_is_trusted_and_sys_exit_ends_it(tmp_path: Path) -> None:
    shown = "import ipywidgets\nipywidgets.IntSlider(value=41, description='of the test')"
    job = make(tmp_path / "job", shown, "import sys\nprint('done')\nsys.exit()", "print('never')")
    assert run(job, JUPYTER_DATA_DIR=str(tmp_path / "jupyter")) == 0
    assert texts(job)[-2].startswith("done\n") and texts(job)[-1] == ""
    executed = nbformat.read(job.folder / "notebook.ipynb", as_version=4)
    states = executed.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"].values()
    assert any(state["state"].get("value") == 41 for state in states)
    assert "of the test" in (job.folder / "notebook.html").read_text()
    notary = NotebookNotary(data_dir=str(tmp_path / "jupyter"), parent=None)
    assert notary.check_signature(executed)
    executed.cells[-1].source = "changed"
    assert not notary.check_signature(executed)
    notary.store.close()


def test_a_group_of_exceptions_has_a_name_and_a_message(tmp_path: Path) -> None:
    """IPython prints it as text, without an output of the kind error."""
    job = make(tmp_path / "job", "raise ExceptionGroup('several', [ValueError('a'), KeyError('b')])")
    assert run(job) == 1
    assert job.status().reason == "cell 3: ExceptionGroup: several (2 sub-exceptions)"
    assert "ValueError: a" in job.log.read_text()


def test_jobs_side_by_side_in_one_working_folder_do_not_hear_each_other(tmp_path: Path) -> None:
    meet = (
        "import pathlib, time\npathlib.Path(f'{text}.begun').touch()\n"
        "while len(list(pathlib.Path().glob('*.begun'))) < 2:\n    time.sleep(0.05)\nprint(text)"
    )
    jobs = [make(tmp_path / text, meet, "print(text, 'again')", text=text) for text in ("tick", "tock")]
    processes = [start(job) for job in jobs]
    try:
        assert [process.wait(timeout=120) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for job in jobs:
        assert job.cwd == tmp_path and texts(job)[2:] == [f"{job.name}\n", f"{job.name} again\n"]
    assert not list(tmp_path.glob("kernel*"))  # sockets


def test_a_training_elsewhere_is_stopped_and_gone_on_with_as_well(tmp_path: Path) -> None:
    inner = TRAINING.replace("run=run", "run=run + '/cache/inner'")
    job = make(tmp_path / "job", "import os; os.makedirs(run + '/cache', exist_ok=True)", inner, frames=100_000_000)
    process = start(job)
    run_folder = job.folder / "cache" / "inner"
    try:
        wait_for(lambda: active_training(job.folder) and len(read_lines(run_folder / "metrics.jsonl")) > 3, process)
        assert "training" in wait_for(lambda: job.status().progress, process)
        (job.folder / "STOP").touch()
        assert process.wait(timeout=120) == 130
    finally:
        process.kill()
        process.wait()
    assert (job.status().state, job.status().reason) == ("stopped", "the file STOP")
    assert not (run_folder / "STOP").exists() and not (job.folder / "STOP").exists()
    assert list((run_folder / "checkpoints").iterdir())


def test_a_kernel_that_is_killed_while_it_starts_is_restarted(tmp_path: Path) -> None:
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    job = make(tmp_path / "job", "pass")
    process = start(job, {"IPYTHONDIR": str(tmp_path / "ipython")})
    assert process.wait(120) == os.EX_TEMPFAIL
    assert job.status().state == "interrupted" and "killed" in job.status().reason


def test_nothing_that_a_cell_shows_is_lost_on_a_slow_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ZMQ silently drops messages after 1,000 unread ones, the end of the cell among them."""
    read, sent = KernelClient.process_message, tmp_path / "sent"

    def slowly(self: KernelClient, message: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        if message["msg_type"] == "execute_input" and "sent" in message["content"]["code"]:
            wait_for(sent.exists)  # the cell has shown everything before the first of it is read
            time.sleep(0.5)
        return read(self, message, *arguments, **options)

    monkeypatch.setattr(KernelClient, "process_message", slowly)
    shown = (
        "from IPython.display import display\nfor k in range(3_000): display({'text/plain': f'{k}'}, raw=True)\n"
        f"open({str(sent)!r}, 'w').close()"
    )
    job = make(tmp_path / "job", shown)
    assert execute_job(job, bar=False).state == "complete"
    *_, cell = nbformat.read(job.folder / "notebook.ipynb", as_version=4).cells
    assert [output.data["text/plain"] for output in cell.outputs] == [str(k) for k in range(3_000)]


@pytest.mark.parametrize("kernel", ["python3", "mine"])
def test_nothing_that_a_cell_shows_is_lost_while_the_job_gets_no_processor(tmp_path: Path, kernel: str) -> None:
    """A stopped job reads nothing: the messages wait in the kernel, which drops them after 1,000 by default."""
    spec = {"argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "language": "python"}
    (tmp_path / "kernels" / "mine").mkdir(parents=True)
    (tmp_path / "kernels" / "mine" / "kernel.json").write_text(json.dumps({"display_name": "mine", **spec}))
    job = make(
        tmp_path / "job",
        "import os, signal, sys\nfrom IPython.display import display\nos.kill(os.getppid(), signal.SIGSTOP)\n"
        "for k in range(5_000): display({'text/plain': f'{k}'}, raw=True)\n"
        "sys.stdout.flush()\nos.kill(os.getppid(), signal.SIGCONT)",
    )
    job.notebook.write_text(job.notebook.read_text().replace('"python3"', f'"{kernel}"'))
    assert run(job, JUPYTER_PATH=str(tmp_path)) == 0
    *_, cell = nbformat.read(job.folder / "notebook.ipynb", as_version=4).cells
    assert [output.data["text/plain"] for output in cell.outputs] == [str(k) for k in range(5_000)]
