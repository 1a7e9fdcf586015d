"""As much of a Weights & Biases server as `wandb sync` asks for, on this machine: it keeps runs and their histories."""

from __future__ import annotations

import gzip
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class WandbServer(http.server.ThreadingHTTPServer):
    """`history`: the rows of each run by its id, in the order in which they came."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.history: dict[str, list[dict[str, Any]]] = {}
        self.config: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, asked: str, given: dict[str, Any]) -> dict[str, Any]:
        project = {"id": "p", "name": "marlnb", "entity": {"id": "e", "name": "me"}}
        if asked == "RunResumeStatus":
            return {"model": {**project, "bucket": self._bucket(given["name"])}}
        if asked == "UpsertBucket":
            inserted = given["name"] not in self.history
            self.history.setdefault(given["name"], [])
            self.config[given["name"]] = given["config"] or self.config.get(given["name"], "{}")
            bucket = {**(self._bucket(given["name"]) or {}), "project": project}
            return {"upsertBucket": {"bucket": bucket, "inserted": inserted}}
        if asked == "CreateRunFiles":
            files = [{"name": name, "uploadUrl": f"{self.url}/upload"} for name in given["files"]]
            return {"createRunFiles": {"runID": "x", "uploadHeaders": [], "files": files}}
        viewer = {"id": "v", "entity": "me", "username": "me", "flags": "{}", "teams": {"edges": []}}
        return {"viewer": viewer, "serverInfo": {"cliVersionInfo": {"max_cli_version": "9"}, "features": []}}

    def _bucket(self, name: str) -> dict[str, Any] | None:
        rows = self.history.get(name)
        if rows is None:
            return None
        history = {"historyLineCount": len(rows), "historyTail": json.dumps([json.dumps(row) for row in rows[-1:]])}
        none = {"eventsLineCount": 0, "eventsTail": "[]", "logLineCount": 0, "summaryMetrics": "{}", "tags": []}
        config = self.config[name]
        return {"id": name, "name": name, "displayName": name, "config": config, **history, **none} | {
            "wandbConfig": json.dumps({"t": 1}),
            "notes": None,
            "description": "",
            "sweepName": None,
        }


class _Requests(http.server.BaseHTTPRequestHandler):
    server: WandbServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        asked = json.loads(body)
        if self.path.startswith("/graphql"):
            self._reply({"data": self.server.answer(asked.get("operationName", ""), asked.get("variables") or {})})
            return
        rows = self.server.history[self.path.split("/")[-2]]  # /files/<entity>/<project>/<run>/file_stream
        for name, chunk in (asked.get("files") or {}).items():
            if name == "wandb-history.jsonl":
                rows[chunk["offset"] :] = [json.loads(line) for line in chunk["content"]]
        self._reply({"exitcode": None, "limits": {}})

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self._reply({})

    def _reply(self, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""


@contextmanager
def serving() -> Iterator[WandbServer]:
    server = WandbServer()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
