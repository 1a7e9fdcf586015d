"""Supervisor: brings a submission's jobs to their ends: `python -m marlnb.batch.local.supervisor BATCH SUBMISSION`.

It outlives whoever submitted, and does without them: what it is asked and what it tells are files in SUBMISSION. TERM
or an interrupt tells its jobs to save, waits for them and ends; when it is killed, its jobs are told by the system.
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
from marlnb.batch.job.job import Job, State
from marlnb.batch.local.capacity import jobs_at_once
from marlnb.batch.local.machine import core_numbers, gpu_names
from marlnb.batch.local.pool import Pool
from marlnb.batch.local.process import JobProcess
from marlnb.batch.local.record import Entry, cancelled, write_entries
from marlnb.batch.retries import give_up, times_begun_again
from marlnb.training.runs.files import read_json

POLL_S = 0.2
COMPLETE, STOPPED = 0, 130


class Supervisor:
    """Runs the jobs of one submission, as many side by side as there is room for, and then the report."""

    def __init__(self, batch: Batch, submission: Path) -> None:
        asked = read_json(submission / "jobs.json")
        self.batch, self.submission, self.profile = batch, submission, batch.profile
        self.then: bool = asked["then"] and batch.then is not None
        self.queue = deque(batch.job(name) for name in asked["jobs"])
        self.running: list[JobProcess] = []
        self.entries = {job.name: Entry() for job in self.queue}
        self.before = times_begun_again(batch)
        self.cores = Pool("core", [str(core) for core in core_numbers()])
        self.gpus = Pool("gpu", gpu_names(os.environ) if self.profile.gpus else [])
        self.at_once = jobs_at_once(self.profile, len(self.gpus.members))
        self.asked_to_end = 0

    def run(self) -> None:
        """Returns when every job has ended, or all were told to save and have."""
        self.say(f"process {os.getpid()}: {len(self.queue)} jobs, at most {self.at_once} side by side")
        self.tell()
        self.add_report()
        while self.queue or self.running:
            self.heed_cancellations()
            if self.asked_to_end:
                self.wind_up()
            self.fill()
            time.sleep(POLL_S)
            self.collect()
            self.add_report()
        self.say("ended")

    def heed_cancellations(self) -> None:
        for name in cancelled(self.submission):
            for job in [job for job in self.queue if job.name == name]:
                self.queue.remove(job)
                self.end(job, "cancelled", "stopped")
            for process in self.running:
                if process.job.name == name:
                    process.cancel()

    def wind_up(self) -> None:
        """Asked to end: nothing more begins, what runs is told to save; asked twice, it is killed."""
        for job in self.queue:
            self.end(job, "its supervisor was told to end")
        self.queue.clear()
        for process in self.running:
            process.interrupt(at_once=self.asked_to_end > 1)

    def fill(self) -> None:
        """Begins jobs while there is room. The first has its cores always, so that no batch waits for another's end."""
        share = self.profile.at_once > 0
        while self.queue and len(self.running) < self.at_once:
            cores = self.cores.take(min(self.profile.cores, len(self.cores.members)), share=share or not self.running)
            gpus = self.gpus.take(self.profile.gpus, share=share)
            if cores is not None and gpus is not None:
                self.begin(self.queue.popleft(), cores, gpus)
                continue
            self.give_back(cores, gpus)
            return self.wait_for("cores" if cores is None else "GPUs")

    def begin(self, job: Job, cores: list[str], gpus: list[str]) -> None:
        if job.is_held:
            self.end(job, "another process executes it already")
        elif job.name != REPORT and job.status().state == "complete":
            self.end(job, "complete already")
        else:
            try:
                job.write()
                process = JobProcess.begin(job, self.profile, cores, gpus)
            except (OSError, ValueError) as error:
                self.end(job, f"it could not be begun: {error}", "failed")
            else:
                self.running.append(process)
                self.say(f"{job.name}: process {process.popen.pid}, cores {cores}" + (f", GPUs {gpus}" if gpus else ""))
                self.change(job, Entry("running", "", process.popen.pid, self.entries[job.name].begun_again))
                return
        self.give_back(cores, gpus)

    def collect(self) -> None:
        """Sends the signals that are due, and settles the processes that have ended."""
        for process in list(self.running):
            sent = process.advance()
            if sent is not None:
                self.say(f"{process.job.name}: sent {sent.name}")
            if process.popen.poll() is not None:
                process.end_leftovers()
                self.running.remove(process)
                self.give_back(process.cores, process.gpus)
                self.settle(process)

    def settle(self, process: JobProcess) -> None:
        """Decides by how its process ended whether a job goes on."""
        job, code, how = process.job, process.popen.returncode, process.outcome()
        killed = code < 0 or code == os.EX_TEMPFAIL
        state = job.status().state
        if process.asked == "cancelled" and state not in ("complete", "failed"):
            self.end(job, "cancelled", "stopped")
        elif killed and not self.asked_to_end:
            self.begin_again(process, how)
        elif killed or code in (COMPLETE, STOPPED) or state == "failed":
            self.end(job, how)
        else:
            self.end(job, f"{how}; see {job.log}", "failed")

    def begin_again(self, process: JobProcess, how: str) -> None:
        """A job that was killed is begun again, up to the profile's resubmits; one that a time limit ended, always
        if its training went on meanwhile, as with a scheduler."""
        job, entry = process.job, self.entries[process.job.name]
        if not (process.is_limited and process.has_headway()):
            if self.before[job.name] + entry.begun_again >= self.profile.resubmits:
                told = give_up(job, how, self.profile.resubmits)
                self.note(f"{job.name}: {told}")
                return self.end(job, told)
            entry.begun_again += 1
        self.note(f"{job.name}: begun again: {how}")
        self.queue.appendleft(job)
        self.change(job, Entry("queued", how, 0, entry.begun_again))

    def add_report(self) -> None:
        """The report follows when every job of the batch, and not only of this submission, is complete."""
        if self.queue or self.running or self.asked_to_end or not self.then or REPORT in self.entries:
            return
        left = len(self.batch.unfinished())
        self.then = left == 0
        if left:
            return self.say(f"no report: {left} jobs of the batch are not complete")
        report = self.batch.report_job()
        report.write()
        self.queue.append(report)
        self.change(self.queue[0], Entry())

    def end(self, job: Job, reason: str, state: State | None = None) -> None:
        """The job ends here; with `state` its status says so, where it could not do that itself."""
        if state is not None:
            job.write_status(replace(job.status(), state=state, reason=reason, ended=time.time()))
        self.say(f"{job.name}: {reason}")
        self.change(job, Entry("ended", reason, 0, self.entries[job.name].begun_again))

    def give_back(self, cores: list[str] | None, gpus: list[str] | None) -> None:
        self.cores.give_back(cores or [])
        self.gpus.give_back(gpus or [])

    def wait_for(self, what: str) -> None:
        reason = f"waits for {what} that other jobs on this machine use"
        for job in self.queue:
            if not self.entries[job.name].reason:
                self.entries[job.name].reason = reason
                self.tell()

    def change(self, job: Job, entry: Entry) -> None:
        self.entries[job.name] = entry
        self.tell()

    def tell(self) -> None:
        with suppress(OSError):  # a full disk: the next time may be better
            write_entries(self.submission, self.entries)

    def note(self, text: str) -> None:
        """A line in the batch's events as well."""
        self.say(text)
        with suppress(OSError):
            self.batch.log_event(text)

    def say(self, text: str) -> None:
        """A line of the supervisor's log."""
        with suppress(OSError):
            print(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}", flush=True)

    def heed_signal(self, number: int, frame: FrameType | None) -> None:
        self.asked_to_end += 1


def main(batch: str, submission: str, lock: str = "") -> int:
    """`lock` is the descriptor of the submission's lock where the executor has taken it already."""
    if lock:
        os.set_inheritable(int(lock), False)  # it falls when this process ends, and no job must keep it
    supervisor = Supervisor(Batch.open(batch), Path(submission))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, supervisor.heed_signal)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a terminal that is closed
    supervisor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
