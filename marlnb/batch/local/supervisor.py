"""Supervisor: runs the jobs of a submission: `python -m marlnb.batch.local.supervisor BATCH SUBMISSION`.

It runs independently of the process that submitted; requests and states are files in SUBMISSION. On SIGTERM or an
interrupt it asks its jobs to save, waits for them and ends. If it is killed, the system sends its jobs SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType

from marlnb.batch.batch import REPORT, Batch
from marlnb.batch.job.job import Job, JobState, SchedulerState
from marlnb.batch.local.capacity import n_parallel_jobs
from marlnb.batch.local.machine import core_numbers, gpu_names
from marlnb.batch.local.pool import Pool
from marlnb.batch.local.process import JobProcess
from marlnb.batch.local.supervisor_files import JobEntry, requested_cancels, write_entries
from marlnb.batch.retries import count_restarts, give_up
from marlnb.batch.submission import Submission
from marlnb.display.formatting import count
from marlnb.errors import MarlnbError

POLL_S = 0.2
COMPLETE, STOPPED = 0, 130


class Supervisor:
    """Runs the jobs of one submission in parallel, and then the report.

    Attributes:
        batch: the batch.
        submission: folder of the submission.
        profile: the batch's profile.
        then: whether the report runs at the end.
        queue: jobs that wait.
        running: processes of running jobs.
        entries: state of each job by name, as written to the submission's folder.
        restarts: how often each job was restarted before this submission.
        cores: pool of the machine's cores.
        gpus: pool of the machine's GPUs.
        n_parallel: maximum number of running jobs.
        n_end_requests: number of signals that asked the supervisor to end.
    """

    def __init__(self, batch: Batch, submission: Path) -> None:
        request = Submission.read(submission)
        self.batch, self.submission, self.profile = batch, submission, batch.profile
        self.then: bool = request.then and batch.then is not None
        self.queue = deque(batch.job(name) for name in request.jobs)
        self.running: list[JobProcess] = []
        self.entries = {job.name: JobEntry() for job in self.queue}
        self.restarts = count_restarts(batch)
        self.cores = Pool("core", [str(core) for core in core_numbers()])
        self.gpus = Pool("gpu", gpu_names(os.environ) if self.profile.gpus else [])
        self.n_parallel = n_parallel_jobs(self.profile, len(self.gpus.members))
        self.n_end_requests = 0

    def run(self) -> None:
        """Returns when every job has ended."""
        self.say(f"process {os.getpid()}: {count(len(self.queue), 'job')}, at most {self.n_parallel} in parallel")
        self.write_entries()
        self.add_report()
        while self.queue or self.running:
            self.cancel_requested()
            if self.n_end_requests:
                self.shut_down()
            else:
                self.start_jobs()
            time.sleep(POLL_S)
            self.collect()
            self.add_report()
        for entry in self.entries.values():
            entry.state = "ended"
        self.write_entries()
        self.say("ended")

    def cancel_requested(self) -> None:
        for name in requested_cancels(self.submission):
            for job in [job for job in self.queue if job.name == name]:
                self.queue.remove(job)
                self.end(job, "cancelled", "stopped")
            for process in self.running:
                if process.job.name == name:
                    process.cancel()

    def shut_down(self) -> None:
        """Ends all jobs after a signal: running ones are asked to save; after a second signal they are killed.

        In its file they count as queued until it ends, so that meanwhile no other supervisor is started for them.
        """
        for job in self.queue:
            self.end(job, "its supervisor was asked to end")
        self.queue.clear()
        for process in self.running:
            process.interrupt(at_once=self.n_end_requests > 1)

    def start_jobs(self) -> None:
        """Starts jobs while cores and GPUs are free. The first job always starts, so no batch waits for another."""
        share = self.profile.at_once > 0
        while self.queue and len(self.running) < self.n_parallel:
            if self.queue[0].name == REPORT and self.queue[0].is_executing:
                return self.mark_waiting("the report that runs now, under an earlier supervisor")
            if share and not self.queue[0].is_executing and len(self.running) + self.n_elsewhere() >= self.n_parallel:
                return self.mark_waiting("jobs of this batch that are still saving under an earlier supervisor")
            cores = self.cores.acquire(
                min(self.profile.cores, len(self.cores.members)), share=share or not self.running
            )
            gpus = self.gpus.acquire(self.profile.gpus, share=share)
            if cores is not None and gpus is not None:
                self.start(self.queue.popleft(), cores, gpus)
                continue
            self.release(cores, gpus)
            return self.mark_waiting(f"{'cores' if cores is None else 'GPUs'} that other jobs on this machine use")

    def n_elsewhere(self) -> int:
        """Jobs of the batch that other processes execute."""
        supervised = {process.job.name for process in self.running}
        return sum(job.is_executing for job in self.batch.jobs() if job.name not in supervised)

    def start(self, job: Job, cores: list[str], gpus: list[str]) -> None:
        if job.is_executing:
            self.end(job, "another process already executes it")
        elif job.name != REPORT and job.status().state == "complete":
            self.end(job, "already complete")
        else:
            try:
                job.write()
                process = JobProcess.start(job, self.profile, cores, gpus)
            except (MarlnbError, OSError, ValueError) as error:  # of this job alone: the others continue
                self.end(job, f"it could not be started: {error}", "failed")
            else:
                self.running.append(process)
                self.say(f"{job.name}: process {process.popen.pid}, cores {cores}" + (f", GPUs {gpus}" if gpus else ""))
                self.change(job, JobEntry("running", "", process.popen.pid, self.entries[job.name].restarts))
                return
        self.release(cores, gpus)

    def collect(self) -> None:
        """Sends due signals, and handles processes that have ended."""
        for process in list(self.running):
            sent = process.send_due_signal()
            if sent is not None:
                self.say(f"{process.job.name}: sent {sent.name}")
            if process.popen.poll() is not None:
                process.kill_descendants()
                self.running.remove(process)
                self.release(process.cores, process.gpus)
                self.handle_end(process)

    def handle_end(self, process: JobProcess) -> None:
        """Restarts or ends a job, depending on how its process ended."""
        job, code, result = process.job, process.popen.returncode, process.outcome()
        killed = code < 0 or code == os.EX_TEMPFAIL
        state = job.status().state
        if process.end_request == "cancelled" and state not in ("complete", "failed"):
            self.end(job, "cancelled", "stopped")
        elif killed and not self.n_end_requests:
            self.restart(process, result)
        elif killed or code in (COMPLETE, STOPPED) or state == "failed":
            self.end(job, result)
        else:
            self.end(job, f"{result}; see {job.log}", "failed")

    def restart(self, process: JobProcess, result: str) -> None:
        """Restarts a killed job, up to `resubmits` of the profile.

        A job that reached its time limit is always restarted if its training advanced, as on a cluster.
        """
        job, entry = process.job, self.entries[process.job.name]
        if not (process.reached_time_limit and process.made_progress()):
            if self.restarts[job.name] + entry.restarts >= self.profile.resubmits:
                message = give_up(job, result, self.profile.resubmits)
                self.log_event(f"{job.name}: {message}")
                return self.end(job, message)
            entry.restarts += 1
        self.log_event(f"{job.name}: restarted: {result}")
        self.queue.appendleft(job)
        self.change(job, JobEntry("queued", result, 0, entry.restarts))

    def add_report(self) -> None:
        """Queues the report once every job of the batch, not only of this submission, is complete."""
        if self.queue or self.running or self.n_end_requests or not self.then or REPORT in self.entries:
            return
        try:
            self.batch = Batch.open(self.batch.path)  # other commands may have added jobs
            n_unfinished, report = len(self.batch.unfinished()), self.batch.report_job()
            self.then = n_unfinished == 0
            if n_unfinished:
                return self.say(f"no report: {count(n_unfinished, 'job')} of the batch not complete")
            report.write()
        except MarlnbError as error:
            self.then = False
            return self.say(f"no report: {error}")
        self.queue.append(report)
        self.change(self.queue[0], JobEntry())

    def end(self, job: Job, reason: str, state: JobState | None = None) -> None:
        """Marks a job as ended; `state` also sets its status, for a job that could not write it itself."""
        if state is not None:
            with suppress(MarlnbError, OSError):  # a full disk, as the reason may say
                job.write_status(replace(job.status(), state=state, reason=reason, ended=time.time()))
        self.say(f"{job.name}: {reason}")
        known: SchedulerState = "queued" if self.n_end_requests and state is None else "ended"
        self.change(job, JobEntry(known, reason, 0, self.entries[job.name].restarts))

    def release(self, cores: list[str] | None, gpus: list[str] | None) -> None:
        self.cores.release(cores or [])
        self.gpus.release(gpus or [])

    def mark_waiting(self, resource: str) -> None:
        reason = f"waits for {resource}"
        for job in self.queue:
            if not self.entries[job.name].reason:
                self.entries[job.name].reason = reason
                self.write_entries()

    def change(self, job: Job, entry: JobEntry) -> None:
        self.entries[job.name] = entry
        self.write_entries()

    def write_entries(self) -> None:
        with suppress(OSError):  # a full disk: try again at the next change
            write_entries(self.submission, self.entries)

    def log_event(self, text: str) -> None:
        """Writes a line to the batch's events and to the log."""
        self.say(text)
        with suppress(OSError):
            self.batch.log_event(text)

    def say(self, text: str) -> None:
        """Writes a line to the supervisor's log."""
        with suppress(OSError):
            print(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}", flush=True)

    def handle_signal(self, number: int, frame: FrameType | None) -> None:
        self.n_end_requests += 1


def main(batch: str, submission: str, lock: str = "") -> int:
    """Runs the supervisor.

    Args:
        batch: folder of the batch.
        submission: folder of the submission.
        lock: file descriptor of the submission's lock, which the executor has acquired; empty without one.
    """
    if lock:
        os.set_inheritable(int(lock), False)  # the lock is released when this process ends: jobs must not inherit it
    supervisor = Supervisor(Batch.open(batch), Path(submission))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, supervisor.handle_signal)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the terminal was closed
    supervisor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
