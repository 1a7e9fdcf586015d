"""Hostile values arrive in the notebook as they were given, and nothing of them is executed.

About 20 s alone on an idle core: two kernels.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

import marlnb as mnb
from marlnb.batch.job.execute import execute
from marlnb.batch.sweep.grammar import values_of_texts

CELL = """
import json, pathlib
with open(pathlib.Path(run, "arrived.json"), "w") as file:
    json.dump({"values": values, "text": text, "number": number}, file)
"""


def hostile(trap: Path) -> list[str]:
    """Texts that a shell, Python, JSON, a format string, a page or a scheduler could take for something else."""
    touch = f"touch {trap}"
    return [
        *(f"$({touch})", f"`{touch}`", f"; {touch}", f"| {touch}", f"&& {touch}", f"\n{touch}\n", f"'; {touch}; '"),
        *(
            f'"; {touch}; "',
            f"'''\nimport os; os.system({touch!r})\n'''",
            f'"""\n__import__("os").system("{touch}")\n"""',
        ),
        *(f"{{__import__('os').system('{touch}')}}", f"!{touch}", f"%%bash\n{touch}", f"$'\\x3b {touch}'"),
        *(
            "it's",
            'say "hi"',
            "\\",
            "\\\\n",
            "\\'",
            '\\"',
            "a\tb\r\nc",
            "\x1b[31m",
            "\x7f\x01",
            "${HOME}",
            "$HOME",
            "~",
        ),
        *(
            "-p",
            "--out=/",
            "-",
            "..",
            "../../etc/passwd",
            "a b/c d",
            "/",
            "*",
            "?",
            "[a-z]",
            "{a,b}",
            "#",
            "%",
            "%s",
            "{}",
        ),
        *(
            "{seed}",
            "<script>alert(1)</script>",
            "&amp;",
            "\u202eabc",
            "\ufeff",
            "\u2028",
            "é",
            "e\u0301",
            "日本語",
            "🎉",
        ),
        *(
            "👩‍👩‍👧‍👦",
            "",
            " ",
            "\n",
            "null",
            "true",
            "1",
            "NaN",
            "Infinity",
            "1e5",
            "0..4",
            "a,b",
            "[1",
            '{"a": 1}',
            "=",
            "a=b",
        ),
        *("#SBATCH --wrap=x", "%j", "%A_%a", "x" * 200_000, "'" * 1000, '"' * 1001, "\\" * 1001),
    ]


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    parameters = 'run = ""\nvalues = []\ntext = ""\nnumber = 0.5'
    cells = [
        nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell(CELL),
    ]
    made = nbformat.v4.new_notebook(cells=cells)
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path = tmp_path / "a notebook; $(x) 'ü' {n}.ipynb"
    nbformat.write(made, path)
    return path


def test_texts_arrive_unchanged(notebook: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    texts = hostile(trap)
    values: list[Any] = [
        *texts,
        {text: [text] for text in texts[:50]},
        None,
        True,
        0.1,
        1e300,
        5e-324,
        2**63 - 1,
        -0.0,
        [],
    ]
    folder = tmp_path / "out" / f"-r $({trap.name}) `x` 'q' \"d\" ;\nü 🎉 {{a}}"
    execute(notebook, folder, {"values": values, "text": texts[8], "number": 3}, progress=False)
    arrived = json.loads((folder / "arrived.json").read_text(encoding="utf-8"))
    assert arrived == {"values": values, "text": texts[8], "number": 3.0}
    assert repr(arrived["values"][-2]) == "-0.0" and isinstance(arrived["number"], float)
    assert not trap.exists()


def test_a_batch_of_hostile_texts(notebook: Path, tmp_path: Path) -> None:
    """Through folders' names, job.json, the supervisor's command line and the notebook."""
    trap = tmp_path / "trap"
    wanted = (f"$(touch {trap}); `touch {trap}`\n'\"🎉", "../../..", "-rf")
    out = tmp_path / "batch; $(x)\n'\"ü"
    batch = mnb.submit(notebook, {"text": wanted[:1], "values": [list(wanted)]}, out=out, progress=False)
    assert [status.state for status in batch.statuses().values()] == ["complete"]
    (job,) = mnb.Batch.open(out).jobs()
    arrived = json.loads((job.folder / "arrived.json").read_text(encoding="utf-8"))
    assert arrived == {"text": wanted[0], "values": list(wanted), "number": 0.5}
    assert job.folder.parent == out / "jobs" and job.name.isascii() and not trap.exists()


def test_quoted_as_json_every_text_passes_the_command_line(tmp_path: Path) -> None:
    texts = hostile(tmp_path / "trap")
    for text in texts:
        assert values_of_texts([f"x={json.dumps(text)}"])["x"].items == (text,)
    unquoted = [text for text in texts if "," not in text and text[:1] not in ('"', "[", "{")]
    assert len(unquoted) > 60
    for text in unquoted:
        if not _is_something_else(text):
            assert values_of_texts([f"x={text}"])["x"].items == (text,)


def _is_something_else(text: str) -> bool:
    """JSON or a range, which a text of the same letters has to be quoted against."""
    try:
        json.loads(text)
    except ValueError:
        return text == "0..4"
    return True
