"""Samples of a long file of rows: rare kinds of rows, and a file that grows, is cut or is replaced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from marlnb.lab.row_index import MAX_LINE_BYTES, RowIndex
from marlnb.training.runs.files import line_of


def _row(k: int, attempt: int = 0) -> dict[str, Any]:
    """Episodes end in every 7th iteration, and every 50th is evaluated."""
    returns = {"a": -k} if k % 7 == 0 else {}
    evaluation = {"a": k} if k % 50 == 0 else {}
    return {"iteration": k, "frames": 10 * k, "returns": returns, "evaluation": evaluation, "seconds": attempt}


def _lines(first: int, last: int, attempt: int = 0) -> str:
    return "".join(f"{line_of(_row(k, attempt))}\n" for k in range(first, last + 1))


def _iterations(index: RowIndex, n_rows: int) -> list[int]:
    problems: list[str] = []
    rows = index.sample(n_rows, problems)
    assert problems == [] and all(row == _row(row["iteration"], row["seconds"]) for row in rows)
    return [row["iteration"] for row in rows]


def test_each_kind_of_rows_is_sampled_by_itself(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text(_lines(1, 1000))
    index = RowIndex(tmp_path / "rows")
    assert _iterations(index, 2) == [1, 7, 50, 994, 1000]  # the first and the last of all, with returns, evaluated
    evaluated = [k for k in _iterations(index, 20) if k % 50 == 0]
    assert evaluated == list(range(50, 1001, 50))


def test_a_file_that_grows_is_read_on_and_one_that_was_cut_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    index = RowIndex(file)
    assert _iterations(index, 400) == []
    file.write_text(_lines(1, 100) + '{"iteration": 101, "fra')  # a row that is being written
    assert _iterations(index, 400) == list(range(1, 101))
    file.write_text(_lines(1, 150))
    assert _iterations(index, 400) == list(range(1, 151))
    file.write_text(_lines(1, 60))
    assert _iterations(index, 400) == list(range(1, 61))
    file.write_text(_lines(1, 40) + _lines(41, 200, attempt=123))  # resumed from iteration 40, and as long again
    assert _iterations(index, 400) == list(range(1, 201))
    file.write_text("")
    assert _iterations(index, 400) == []
    file.write_text(_lines(1, 2))
    assert _iterations(index, 400) == [1, 2]


def test_damaged_lines_are_counted_and_the_others_are_read(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_text(_lines(1, 3) + "x" * (MAX_LINE_BYTES - 1) + "\n{}\n" + json.dumps(_row(4)) + "\n")
    problems: list[str] = []
    assert [row["iteration"] for row in RowIndex(file).sample(400, problems)] == [1, 2, 3, 4]
    assert "a line is damaged" in problems[0] and problems[0].endswith("; 2 damaged lines in all")
