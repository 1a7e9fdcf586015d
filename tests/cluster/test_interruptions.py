"""Whatever ends a job in the middle of its training, the job resumes and the result is the same.

Each scenario interrupts one job of a real SLURM, lets it be finished, and compares weights, curve and notebook with
those of the same notebook executed on this machine with no interruption at all.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster import notebooks
from tests.cluster.cluster import Cluster
from tests.cluster.evidence import evidence
from tests.cluster.processes import inhabitants, until
from tests.cluster.sending import MARLNB, Sent, kill_group, marlnb

ITERATIONS, HALFWAY = 60, 25
Send = Callable[..., Sent]

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def source(cluster: Cluster) -> Path:
    return notebooks.write(cluster.settings.folder("work") / "training.ipynb", notebooks.TRAINING)


@pytest.fixture(scope="module")
def undisturbed(cluster: Cluster, source: Path) -> Path:
    """A run with nothing of SLURM's, and no pauses."""
    folder = cluster.settings.folder("work") / "undisturbed"
    words = ["marlnb.batch.job.execute", str(source), "--out", str(folder), "-p", f"iterations={ITERATIONS}"]
    subprocess.run([sys.executable, "-m", *words], check=True, capture_output=True, timeout=300)
    return folder


@pytest.fixture
def send(cluster: Cluster, source: Path, request: pytest.FixtureRequest) -> Send:
    """Sends the training, paced so that it can be hit, as one job under a profile with these lines."""
    name = re.sub(r"\W+", "_", request.node.name)

    def send(pace_s: float = 0.2, **profile: object) -> Sent:
        number = len(list(cluster.settings.folder("work").glob(f"{name}-*.yaml")))
        file = cluster.settings.folder("work") / f"{name}-{number}.yaml"
        lines = {"executor": "slurm", "time_limit": "'00:10:00'", **profile}
        file.write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
        words = ("-p", f"iterations={ITERATIONS}", "-p", f"pace_s={pace_s}")
        return Sent.by(cluster, source, file.with_suffix(""), *words, profile=str(file))

    return send


def assert_as_undisturbed(sent: Sent, undisturbed: Path) -> None:
    expected, actual = evidence(undisturbed), evidence(sent.run())
    assert actual.iteration == expected.iteration == ITERATIONS
    assert actual.curve == expected.curve
    assert actual.tensors == expected.tensors
    outputs = notebooks.executed_cells(sent.run() / "notebook.ipynb")
    assert outputs == notebooks.executed_cells(undisturbed / "notebook.ipynb")
    assert [number for *_, number in outputs] == [3, 4, 5]  # 1 and 2 are the parameters
    assert "<html" in (sent.run() / "notebook.html").read_text()


def reasons(sent: Sent) -> list[tuple[str, str]]:
    from marlnb.batch.job.job import Job

    return [(attempt["state"], attempt["reason"]) for attempt in Job.open(sent.run()).attempts()]


def urgent(cluster: Cluster) -> str:
    """A job of the partition that comes first, which needs the whole node; its id."""
    asked = ("-p", "urgent", "-c", str(cluster.settings.cpus), "-J", "urgent", "-o", "/dev/null", "--wrap", "sleep 3")
    return cluster.command("sbatch", "--parsable", *asked).strip()


@contextmanager
def watching(cluster: Cluster, sent: Sent) -> Iterator[None]:
    """`marlnb watch` meanwhile, which then ends by itself."""
    words = [str(MARLNB), "watch", str(sent.folder)]
    with open(sent.folder / "watch.txt", "wb") as out:
        process = subprocess.Popen(words, env=cluster.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        yield
        process.wait(timeout=90)
    finally:
        process.kill()
        process.wait()


def test_usr1_saves_and_asks_for_another_turn(cluster: Cluster, send: Send, undisturbed: Path) -> None:
    sent = send()
    sent.await_iterations(HALFWAY)
    cluster.command("scancel", "--signal=USR1", "--batch", sent.running_id())
    sent.await_complete()
    assert [state for state, _ in reasons(sent)] == ["interrupted", "complete"]
    assert "SIGUSR1" in reasons(sent)[0][1]
    assert_as_undisturbed(sent, undisturbed)


def test_preemption_with_a_warning(cluster: Cluster, send: Send, undisturbed: Path) -> None:
    sent = send()
    sent.await_iterations(HALFWAY)
    other = urgent(cluster)
    sent.await_complete()
    assert "JobState=COMPLETED" in cluster.command("scontrol", "show", "job", other)
    assert [state for state, _ in reasons(sent)] == ["interrupted", "complete"], sent.story()
    assert "SIGUSR1" in reasons(sent)[0][1]
    assert_as_undisturbed(sent, undisturbed)


def test_preemption_without_a_warning(cluster: Cluster, send: Send, undisturbed: Path) -> None:
    """SLURM then ends it with TERM after its grace, and either requeues it or calls that TIMEOUT: the watcher's."""
    cluster.change(warns=False, grace_s=2)
    try:
        sent = send(pace_s=2)
        sent.await_iterations(HALFWAY)
        other = urgent(cluster)
        with watching(cluster, sent):
            sent.await_complete(timeout_s=480)
    finally:
        cluster.change(warns=True, grace_s=60)
    assert "JobState=COMPLETED" in cluster.command("scontrol", "show", "job", other)
    assert "SIGTERM" in reasons(sent)[0][1]
    assert_as_undisturbed(sent, undisturbed)


def test_scancel_saves_and_the_same_command_completes_it(cluster: Cluster, send: Send, undisturbed: Path) -> None:
    sent = send()
    sent.await_iterations(HALFWAY)
    cluster.command("scancel", sent.running_id())
    sent.await_states("interrupted")
    saved = max(int(path.name) for path in (sent.run() / "checkpoints").iterdir() if path.name.isdigit())
    assert saved >= HALFWAY and saved % 20, f"saved when TERM came, not at a multiple of 20: {saved}"
    until("the scheduler says so too", lambda: [state for _, state in sent.ids()] == ["CANCELLED"])
    assert sent.status().pid not in inhabitants(cluster.namespace)
    sent.again()
    sent.await_complete()
    assert_as_undisturbed(sent, undisturbed)


def test_watch_restarts_a_killed_job(cluster: Cluster, send: Send, undisturbed: Path) -> None:
    sent = send()
    sent.await_iterations(HALFWAY)
    kill_group(sent.status().pid)
    assert marlnb(cluster, "watch", str(sent.folder)).returncode == 0
    assert sent.states() == {"only": "complete"}
    assert len(sent.events().splitlines()) >= 2
    assert reasons(sent)[0][0] == "interrupted"
    assert_as_undisturbed(sent, undisturbed)


def test_slurmd_killed_and_restarted_does_not_matter(cluster: Cluster, send: Send, undisturbed: Path) -> None:
    sent = send()
    sent.await_iterations(HALFWAY)
    cluster.end_node(kill=True)
    cluster.begin_node()
    sent.await_complete()
    assert [state for state, _ in reasons(sent)] == ["complete"]
    assert_as_undisturbed(sent, undisturbed)


def test_a_lost_node_comes_back_and_the_scheduler_runs_it_again(
    cluster: Cluster, send: Send, undisturbed: Path
) -> None:
    sent = send()
    sent.await_iterations(HALFWAY)
    cluster.lose_node()
    assert '"running"' in (sent.run() / "job_status.json").read_text()  # no process was left to write it
    until("its lock says otherwise", lambda: sent.states() == {"only": "interrupted"}, timeout_s=20)
    cluster.begin_node()
    sent.await_complete()
    assert_as_undisturbed(sent, undisturbed)


def test_watch_restarts_the_job_of_a_lost_node_without_requeue(cluster: Cluster, send: Send, undisturbed: Path) -> None:
    sent = send()
    sent.await_iterations(HALFWAY)
    cluster.command("scontrol", "update", f"jobid={sent.running_id()}", "requeue=0")  # as an administrator may set it
    cluster.lose_node()
    cluster.begin_node()
    until("the scheduler gave it up", lambda: [state for _, state in sent.ids()] == ["NODE_FAIL"], timeout_s=90)
    assert marlnb(cluster, "watch", str(sent.folder)).returncode == 0
    assert "NODE_FAIL" in sent.events()
    assert_as_undisturbed(sent, undisturbed)


def test_time_limits_with_and_without_a_warning(cluster: Cluster, send: Send, undisturbed: Path) -> None:
    """Both at once, since they take minutes: SLURM counts limits in minutes and warns up to one too early."""
    warned = send(pace_s=1.2, time_limit="'00:02:00'", warn_s=60)
    unwarned = send(pace_s=1.2, time_limit="'00:01:00'", warn_s=0)
    with watching(cluster, warned), watching(cluster, unwarned):
        warned.await_complete(timeout_s=480)
        unwarned.await_complete(timeout_s=480)
    assert "SIGUSR1" in reasons(warned)[0][1]
    assert "restarted" not in warned.events()  # the scheduler was asked for another turn, by the job itself
    assert "nearly over" in reasons(unwarned)[0][1]  # it got no warning: it knows when its allocation ends
    assert "TIMEOUT" not in unwarned.events()
    assert_as_undisturbed(warned, undisturbed)
    assert_as_undisturbed(unwarned, undisturbed)


def test_a_job_that_is_killed_each_time_is_given_up_with_the_reason(cluster: Cluster, send: Send) -> None:
    sent = send(resubmits=1)
    with watching(cluster, sent):
        for attempt in (1, 2):
            until(f"attempt {attempt}", lambda n=attempt: sent.status().attempt == n, timeout_s=240)  # type: ignore[misc]
            sent.running_id()
            kill_group(sent.status().pid)
        sent.await_states("failed", timeout_s=240)
    assert "given up after 1 restarts" in sent.status().reason
    assert "given up" in sent.events()
    assert marlnb(cluster, "jobs", str(sent.folder), check=False).returncode == 1
