"""`marlnb lab`: the start page, Markdown as pages, root, and a port that is taken, in a real JupyterLab server."""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from marlnb.cli import main, parser_of
from marlnb.cli.setup import lab

ROOT = Path(__file__).parents[2]
TOKEN = "of-this-test"
VIEWERS = "@jupyterlab/docmanager-extension:plugin"


def parsed(*words: str) -> argparse.Namespace:
    return parser_of("lab").parse_args(words)


def test_the_start_page_of_a_clone_is_the_first_hour(tmp_path: Path) -> None:
    assert "--LabApp.default_url=/lab/tree/notebooks/README.md" in lab.command(parsed(str(ROOT)))
    assert "--LabApp.default_url=/lab" in lab.command(parsed(str(tmp_path)))
    (tmp_path / "my page.md").touch()
    words = lab.command(parsed(str(tmp_path), "--start", "my page.md", "--port", "9000", "--ip", "0.0.0.0"))
    assert "--LabApp.default_url=/lab/tree/my%20page.md" in words
    assert {"--ServerApp.port=9000", "--ServerApp.ip=0.0.0.0", f"--ServerApp.root_dir={tmp_path}"} <= set(words)


def test_root_is_allowed_only_where_it_runs_as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "--allow-root" in lab.command(parsed())
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "--allow-root" not in lab.command(parsed())


def test_what_does_not_exist_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", str(tmp_path / "nowhere")]) == 2
    assert "nowhere is not a folder" in capsys.readouterr().err
    assert main(["lab", str(tmp_path), "--start", "missing.md"]) == 2
    assert f"--start missing.md: there is no such file in {tmp_path}" in capsys.readouterr().err


def test_settings_of_the_user_come_first() -> None:
    assert lab.environment({})["JUPYTER_CONFIG_PATH"] == str(lab.SETTINGS)
    paths = lab.environment({"JUPYTER_CONFIG_PATH": "/mine"})["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    assert paths == ["/mine", str(lab.SETTINGS)]


def test_a_server_opens_the_page_on_the_next_free_port(tmp_path: Path) -> None:
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown" / "README.md").write_text("# Here\n")
    variables = {key: value for key, value in os.environ.items() if not key.startswith("JUPYTER")}
    variables |= {"JUPYTER_TOKEN": TOKEN, "JUPYTER_CONFIG_DIR": str(tmp_path), "JUPYTER_DATA_DIR": str(tmp_path)}
    variables |= {"PYTHONPATH": str(ROOT), "JUPYTER_RUNTIME_DIR": str(tmp_path)}
    with socket.socket() as taken, open(tmp_path / "log", "w+") as log:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = [sys.executable, "-m", "marlnb", "lab", "shown", "--no-browser", "--port", str(port)]
        server = subprocess.Popen(words, cwd=tmp_path, env=variables, stdout=log, stderr=log)
        try:
            address = _address(tmp_path / "log", server)
            assert int(re.findall(r":(\d+)", address)[0]) != port
            assert address.endswith("/lab/tree/README.md")
            server_url = address.removesuffix("/lab/tree/README.md")
            settings = json.loads(_read(f"{server_url}/lab/api/settings/{VIEWERS}"))
            assert settings["schema"]["properties"]["defaultViewers"]["default"] == {"markdown": "Markdown Preview"}
        finally:
            server.terminate()
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
                pytest.fail(f"the server did not stop: {(tmp_path / 'log').read_text()}")


def _address(log: Path, server: subprocess.Popen[bytes]) -> str:
    """The address that the server prints, without its token."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()
        if match := re.search(r"(http://(?:127\.0\.0\.1|localhost):\d+\S*)\?token", log.read_text()):
            return match[1]
        time.sleep(0.1)
    raise TimeoutError(log.read_text())


def _read(url: str) -> bytes:
    """What the server answers. It prints its address a moment before it listens."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"{url}?token={TOKEN}", timeout=60) as answer:
                return bytes(answer.read())
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError) or time.monotonic() > deadline:
                raise
        time.sleep(0.1)
