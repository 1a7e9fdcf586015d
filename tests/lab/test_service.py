"""What the JupyterLab extension asks of a kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from marlnb.lab.service import reply
from marlnb.lab.verbs import Session
from marlnb.training.runs.listing import list_runs
from tests.lab.run_folders import write_run


def ask(session: Session, verb: str, **arguments: Any) -> dict[str, Any]:
    text = reply(session, json.dumps({"id": 5, "verb": verb, "arguments": arguments}))
    message: dict[str, Any] = json.loads(text)
    assert text.isascii() and message["id"] == 5
    return message


def test_runs_are_those_of_the_command(tmp_path: Path) -> None:
    for seed in range(3):
        write_run(tmp_path / f"seed={seed}", seed=seed)
    session = Session()
    answer = ask(session, "runs", folders=[str(tmp_path)])["answer"]
    assert answer["complete"] and answer["changed"] == [run.to_json() for run in list_runs(tmp_path)]
    assert ask(session, "runs", folders=[str(tmp_path)])["answer"]["changed"] == []
    assert len(ask(session, "runs", folders=[str(tmp_path)], fresh=True)["answer"]["changed"]) == 3


def test_a_request_that_cannot_be_met_is_answered_with_a_sentence() -> None:
    assert "no verb 'delete_all'" in ask(Session(), "delete_all")["error"]
    assert "runs" in ask(Session(), "__init__")["error"]
    assert "TypeError" in ask(Session(), "runs", folder=3)["error"]
    assert "JSONDecodeError" in json.loads(reply(Session(), "{"))["error"]
