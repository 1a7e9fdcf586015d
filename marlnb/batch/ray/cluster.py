"""RayCluster: jobs of a Ray cluster, through the HTTP API of its dashboard. Ray itself need not be installed here.

The address, and the token, come from the environment alone: a batch's files may come from anyone.

Source: https://docs.ray.io/en/latest/cluster/running-applications/job-submission/rest.html
"""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from marlnb.batch.executor import NoSchedulerError
from marlnb.batch.job.job import JobInfo
from marlnb.errors import REPLACEMENT, BatchError, printable

ADDRESS_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")  # those of `ray job`
TOKEN_FILE = "~/.ray/auth_token"
TIMEOUT_S = 30.0
MAX_TEXT_LENGTH = 300
RESOURCES = ("CPU", "GPU", "memory")  # of a node, by Ray's names
_FROM_RAY = re.compile(r"^Running entrypoint for job |INFO job_manager\.py")  # among the lines of a job's output


@dataclass(frozen=True)
class RayCluster:
    """The cluster whose dashboard has an address such as `http://127.0.0.1:8265`."""

    address: str

    @staticmethod
    def find() -> RayCluster:
        """The cluster of RAY_API_SERVER_ADDRESS or RAY_ADDRESS, as `ray job` finds it, but for its default address.

        Raises:
            NoSchedulerError: neither has the address of a dashboard.
            BatchError: the address has a password, which logs would show.
        """
        addresses = [os.environ.get(name, "").strip() for name in ADDRESS_VARIABLES]
        urls = [address for address in addresses if address.startswith(("http://", "https://"))]
        if not urls:
            raise NoSchedulerError(
                f"{ADDRESS_VARIABLES[0]} is not set; set it to the address of a Ray cluster's dashboard, such as "
                "http://127.0.0.1:8265 after `ray start --head` on this machine. `--on local` runs jobs here"
            )
        if "@" in urls[0]:
            raise BatchError("the address of Ray's dashboard holds a name or password; give Ray's token instead")
        return RayCluster(urls[0].rstrip("/"))

    def version(self) -> str:
        """Ray's version.

        Raises:
            NoSchedulerError: no Ray cluster answers at the address.
        """
        answer = self._call("GET", "/api/version")
        return one_line(str(answer.get("ray_version", "?"))) if isinstance(answer, dict) else "?"

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

    def largest_node(self) -> dict[str, float]:
        """Cores, GPUs and GB of memory of the nodes that are up, the maximum of each: `{"CPU": 2.0, ...}`."""
        answer = self._call("GET", "/api/v0/nodes")
        try:
            nodes = [node["resources_total"] for node in answer["data"]["result"]["result"] if node["state"] == "ALIVE"]
            largest = {name: max((float(node.get(name, 0)) for node in nodes), default=0.0) for name in RESOURCES}
        except (TypeError, KeyError, ValueError, AttributeError):
            raise BatchError(f"Ray at {self.address} answered something else than its nodes") from None
        return {**largest, "memory": largest["memory"] / 1024**3}

    def _call(self, method: str, path: str, content: Mapping[str, Any] | None = None) -> Any:
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self.address + path, method=method, data=data, headers=_headers())
        try:
            with _OPENER.open(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code in (401, 403):
                raise BatchError(
                    f"Ray at {self.address} asks for a valid token; give it in RAY_AUTH_TOKEN, or in the file of "
                    f"RAY_AUTH_TOKEN_PATH or {TOKEN_FILE}"
                ) from None
            lines = error.read().decode(errors="replace").strip().splitlines() or [str(error)]
            text = next((line for line in reversed(lines) if len(line) > 1), str(error))  # the end of a traceback
            raise BatchError(f"Ray at {self.address} refused {method} {path}: {one_line(text)}") from None
        except (OSError, ValueError, HTTPException) as error:
            reason = one_line(str(getattr(error, "reason", error)))
            raise NoSchedulerError(
                f"no Ray cluster answers at {self.address}: {reason}; start one with `ray start --head`, or set "
                f"{ADDRESS_VARIABLES[0]} to the address of its dashboard. `--on local` runs jobs here"
            ) from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """urllib would send the token on, to whatever host an answer names."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def read_token() -> str:
    """The token of a cluster that asks for one, from where Ray reads it; empty without one.

    Raises:
        BatchError: it has characters that no token has; the message does not show it.
    """
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "disabled":
        return ""
    token = os.environ.get("RAY_AUTH_TOKEN", "").strip()
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or TOKEN_FILE).expanduser()
    if not token:
        try:
            token = path.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""
    if not (token.isascii() and token.isprintable()):
        raise BatchError(f"the token in RAY_AUTH_TOKEN or {path} is not one line of ASCII")
    return token


def _headers() -> dict[str, str]:
    token = read_token()
    return {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}


def read_jobs(answer: Any) -> dict[str, JobInfo]:
    """Parses the list of jobs of the API; jobs that were not submitted through it have no id and are left out.

    Raises:
        BatchError: it is no such list.
    """
    try:
        return {str(job["submission_id"]): _job_info(job) for job in answer if job.get("submission_id")}
    except (TypeError, KeyError, AttributeError):
        raise BatchError("Ray answered something else than a list of its jobs") from None


def _job_info(job: Mapping[str, Any]) -> JobInfo:
    status, id = str(job["status"]), str(job["submission_id"])
    lines = [line for line in map(one_line, str(job.get("message") or "").splitlines()) if line]
    if status in ("PENDING", "RUNNING"):
        reason = lines[0].removeprefix("Job has not started yet. ").partition(". ")[0] if lines else ""
        return JobInfo("queued", reason, id) if status == "PENDING" else JobInfo("running", "", id)
    if status == "STOPPED":
        return JobInfo("ended", "CANCELLED in Ray", id)
    if status == "SUCCEEDED":
        return JobInfo("ended", "", id)
    if status != "FAILED":  # of a newer Ray: wait for its end
        return JobInfo("queued", one_line(status), id)
    if job.get("error_type") == "JOB_SUPERVISOR_ACTOR_START_TIMEOUT":
        return JobInfo("ended", "it waited longer than the cluster's RAY_JOB_START_TIMEOUT_SECONDS, by default 900", id)
    code = job.get("driver_exit_code")
    if not isinstance(code, int):
        return JobInfo("ended", lines[0] if lines else status, id)
    output = [line for line in lines[1:] if not _FROM_RAY.search(line)]
    return JobInfo("ended", ": ".join([f"signal {-code}" if code < 0 else f"exit code {code}", *output[-1:]]), id)


def one_line(text: str) -> str:
    """A line from elsewhere without colours and control characters, cut to MAX_TEXT_LENGTH characters."""
    line = printable(text).replace(REPLACEMENT, "").strip()
    return line if len(line) <= MAX_TEXT_LENGTH else line[: MAX_TEXT_LENGTH - 1] + "…"
