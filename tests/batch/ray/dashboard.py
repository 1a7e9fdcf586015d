"""A dashboard that answers as a real Ray did; `make ray-test` drives a real one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

CAPTURED = Path(__file__).parent / "captured"
VERSION = {"version": "4", "ray_version": "2.60.0"}
TIMEOUT = "it waited longer than the cluster's RAY_JOB_START_TIMEOUT_SECONDS, by default 900"


def captured() -> Any:
    """One job in each state, of Ray 2.60.0."""
    return json.loads((CAPTURED / "jobs.json").read_text())


class Dashboard:
    """Answers by path and stores requests.

    Attributes:
        answers: by method and path, an answer: JSON, or a status with a text.
        requests: method and path of each request. posted: the contents. headers: of the last request.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {"GET /api/version": VERSION, "GET /api/jobs/": [], "POST /api/jobs/": {}}
        self.requests: list[str] = []
        self.posted: list[Any] = []
        self.headers: dict[str, str] = {}
        self.server = HTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def job(self, id: str, like: str) -> None:
        """Adds a job to the answer, in the state of a captured one."""
        (state,) = (job for job in captured() if job["submission_id"] == like)
        self.answers["GET /api/jobs/"].append({**state, "submission_id": id})


def _handler(dashboard: Dashboard) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            key = f"{self.command} {self.path}"
            dashboard.requests.append(key)
            dashboard.headers = dict(self.headers)
            if length := int(self.headers.get("Content-Length", 0)):
                dashboard.posted.append(json.loads(self.rfile.read(length)))
            answer = dashboard.answers.get(key, (404, "no such path"))
            status, text = answer if isinstance(answer, tuple) else (200, json.dumps(answer))
            self.send_response(status)
            if status in (301, 302):
                self.send_header("Location", text)
            self.end_headers()
            self.wfile.write(text.encode())

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


@pytest.fixture
def dashboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Dashboard]:
    """One that the environment names, and no token of the user's."""
    made = Dashboard()
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", made.address)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "no-token"))
    yield made
    made.server.shutdown()
    made.server.server_close()
