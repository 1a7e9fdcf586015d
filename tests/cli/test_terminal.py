"""What the command line prints cannot control a terminal, whatever the names of files, runs and agents contain."""

from __future__ import annotations

import ast
import io
from pathlib import Path

import pytest

import marlnb.cli
from marlnb.batch.progress_display import BatchProgress
from marlnb.cli import main
from marlnb.display.notice import print_notice
from tests.recording.runs import LivesConfig, make_run

RED, BIDI = "\x1b[31m", "\N{RIGHT-TO-LEFT OVERRIDE}"
HOSTILE = f"a{RED}\rb{BIDI}c\x07\x1b]0;title\x07"
HARMLESS = "a\ufffdb\ufffdc\ufffd\ufffd]0;title\ufffd"


def is_printable(text: str) -> bool:
    return all(character.isprintable() or character == "\n" for character in text)


def test_names_of_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / HOSTILE / "run", LivesConfig())
    for words in (
        ["info", str(run.path)],
        ["runs", str(tmp_path)],
        ["runs", str(tmp_path / HOSTILE / "none")],
        ["evaluate", str(run.path), "--episodes", "1", "--n-envs", "1"],
        ["record", str(run.path), "--episodes", "1", "--n-envs", "1", "--quiet", "--trust"],
        ["info", str(run.path / "recordings" / "recording.h5")],
        ["repair", str(run.path / "recordings" / "recording.h5")],
        ["info", str(tmp_path / "none" / HOSTILE)],
        ["jobs", str(tmp_path / HOSTILE)],
        ["stop", str(run.path)],
        ["doctor", "--run", str(run.path)],
    ):
        main(words)
        output = capsys.readouterr()
        shown = output.out + output.err
        assert is_printable(shown) and (HARMLESS in shown or words[0] == "evaluate"), (words, shown)


def test_bytes_that_are_no_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Python reads them as lone surrogates, which no terminal takes."""
    run = make_run(tmp_path / "x\udcff", LivesConfig())
    assert main(["info", str(run.path)]) == 0
    assert "x\ufffd" in capsys.readouterr().out


def test_characters_that_the_terminal_lacks_are_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "ü", LivesConfig())
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", terminal)
    assert main(["info", str(run.path)]) == 0
    assert rb"\xfc" in terminal.buffer.getvalue()  # type: ignore[attr-defined]


def test_notices_and_progress(capsys: pytest.CaptureFixture[str]) -> None:
    print_notice(HOSTILE)
    assert capsys.readouterr().err == f"marlnb: {HARMLESS}\n"
    stream = io.StringIO()
    BatchProgress(stream).say(HOSTILE)
    assert stream.getvalue() == f"{HARMLESS}\n"


def test_commands_print_through_one_module_only() -> None:
    folder = Path(marlnb.cli.__file__).parent
    raw = [
        f"{path.name}:{node.lineno}"
        for path in folder.rglob("*.py")
        if path.name != "output.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Name) and node.id == "print")
        or ast.unparse(node) in ("sys.stdout.write", "sys.stderr.write")
    ]
    assert raw == []
