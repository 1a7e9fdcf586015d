"""RayCluster: jobs of a Ray cluster, through the HTTP API of its dashboard. Ray itself need not be installed here.

Source: https://docs.ray.io/en/latest/cluster/running-applications/job-submission/rest.html
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marlnb.batch.executor import NoSchedulerError
from marlnb.batch.job.job import JobInfo
from marlnb.errors import BatchError

ADDRESS_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")  # those of `ray job`
DEFAULT_ADDRESS = "http://127.0.0.1:8265"
TIMEOUT_S = 60.0
MAX_ERROR_LENGTH = 500


@dataclass(frozen=True)
class RayCluster:
    """The cluster whose dashboard has an address such as `http://127.0.0.1:8265`."""

    address: str

    @staticmethod
    def find() -> RayCluster:
        """The cluster that `ray job` would use: that of RAY_API_SERVER_ADDRESS or RAY_ADDRESS, or this machine's."""
        addresses = [os.environ.get(name, "") for name in ADDRESS_VARIABLES]
        urls = [address for address in addresses if address.startswith(("http://", "https://"))]
        return RayCluster((urls or [DEFAULT_ADDRESS])[0].rstrip("/"))

    def version(self) -> str:
        """Ray's version.

        Raises:
            NoSchedulerError: no Ray cluster answers at the address.
        """
        return str(self._call("GET", "/api/version")["ray_version"])

    def submit(self, request: Mapping[str, Any]) -> None:
        """Submits a job; `request` has the keys of `ray job submit`: submission_id, entrypoint, runtime_env, ...

        Raises:
            BatchError: Ray refused it.
        """
        self._call("POST", "/api/jobs/", request)

    def jobs(self) -> dict[str, JobInfo]:
        """All submitted jobs by id, with one call."""
        return read_jobs(self._call("GET", "/api/jobs/"))

    def stop(self, id: str) -> None:
        """Ends a job; one that has ended is no error."""
        self._call("POST", f"/api/jobs/{id}/stop")

    def _call(self, method: str, path: str, content: Mapping[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            self.address + path,
            method=method,
            data=None if content is None else json.dumps(content).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            lines = error.read().decode(errors="replace").strip().splitlines() or [str(error)]
            text = next((line for line in reversed(lines) if len(line) > 1), str(error))  # the end of a traceback
            raise BatchError(f"Ray at {self.address} refused {method} {path}: {text[:MAX_ERROR_LENGTH]}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise NoSchedulerError(
                f"no Ray cluster answers at {self.address}: {reason}; start one with `ray start --head`, or set "
                f"{ADDRESS_VARIABLES[0]} to the address of its dashboard. `--on local` runs jobs here"
            ) from None


def read_jobs(answer: Any) -> dict[str, JobInfo]:
    """Parses the list of jobs of the API; jobs that were not submitted through it have no id and are left out."""
    return {job["submission_id"]: _job_info(job) for job in answer if job.get("submission_id")}


def _job_info(job: Mapping[str, Any]) -> JobInfo:
    status, id = job["status"], job["submission_id"]
    lines = [line.strip() for line in (job.get("message") or "").splitlines() if line.strip()]
    if status == "PENDING":
        reason = lines[0].removeprefix("Job has not started yet. ").partition(". ")[0] if lines else ""
        return JobInfo("queued", reason, id)
    if status == "RUNNING":
        return JobInfo("running", "", id)
    if status == "STOPPED":
        return JobInfo("ended", "CANCELLED in Ray", id)
    if status == "SUCCEEDED":
        return JobInfo("ended", "", id)
    code = job.get("driver_exit_code")
    first = lines[0].partition(", last available logs")[0] if lines else status
    words = [f"exit code {code}" if code is not None else first, *lines[-1:]]  # the last line of its output
    return JobInfo("ended", ": ".join(dict.fromkeys(words)), id)
