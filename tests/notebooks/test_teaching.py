"""Exercises: the solutions are right to the end, the students' versions say what is to do; checks explain mistakes.

Every cell can be run again, in any order, once the notebook has run to its end. About a minute and a half on an idle
core (not measured alone): four kernels execute a student's version, then its solutions twice.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
from nbformat import NotebookNode

import marlnb as mnb
from marlnb.batch.job.execute import execute
from marlnb.errors import ConfigError
from marlnb.teaching import check, checking, marks
from marlnb.teaching.__main__ import main
from marlnb.teaching.memory import measure
from marlnb.teaching.student import student_version, without_solutions

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks" / "teaching"
SOLUTIONS = sorted((ROOT / "teaching-solutions").glob("*.ipynb"))
SMALL: dict[str, dict[str, Any]] = {"2": {"seeds": [0]}, "3": {"episodes": 60}, "4": {"n_random_sets": 6}}
DATA = ROOT / "data" / "speaker_listener"
THERE = {  # by chapter: mistakes that are judged with what the notebook has found, and what is said of them
    "3": (
        'wrong = (-gained, score.score, score.score - score.untrained, score.score / score.observation, 0.0, "R2")\n'
        '[check("3.3", answer, decoding=where) for answer in wrong]',
        (
            "other way round",
            "all that the units hold",
            "untrained network",
            "a ratio",
            "has the fields",
            "without quotes",
        ),
    ),
    "4": (
        "wrong = (-cost, effect.after, -effect.before, effect.high - effect.low, 1000)\n"
        '[check("4.2", answer, result=result) for answer in wrong]',
        ("without the minus", "with the edit", "without the edit", "width of the interval", "has before, after"),
    ),
}


@pytest.fixture(autouse=True)
def nothing_answered() -> Iterator[None]:
    checking._verdicts.clear()
    yield
    checking._verdicts.clear()


def verdicts(cells: list[NotebookNode]) -> list[str]:
    """What checks said in executed cells."""
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    texts = [output.get("data", {}).get("text/plain", "") for output in outputs]
    return [text for text in texts if text.startswith("exercise ")]


def test_there_is_a_students_version_of_each_and_nothing_else() -> None:
    assert [path.name for path in SOLUTIONS] == sorted(path.name for path in FOLDER.glob("*.ipynb"))
    assert len(SOLUTIONS) == 4


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_the_students_version_is_made_from_the_solutions(path: Path) -> None:
    instructor, student = nbformat.read(path, 4), nbformat.read(FOLDER / path.name, 4)
    assert student == student_version(instructor), "python -m marlnb.teaching students ... was not run again"
    text = nbformat.writes(student)
    assert "copytree" not in text  # it keeps modes: copies of read-only data could not be written
    assert "cwd" not in text  # a student may keep the notebook in any folder
    assert "SOLUTION" not in text and "Instructor" not in text and "assert" not in text
    for notebook in (instructor, student):
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert all(not cell.outputs and cell.execution_count is None for cell in code)
        assert sum("parameters" in cell.metadata.get("tags", []) for cell in code) == 1
        (parameters,) = (cell.source for cell in code if "parameters" in cell.metadata.get("tags", []))
        assert all("  # " in line for line in parameters.splitlines())


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_blanks_say_what_to_do_solutions_are_right_and_every_cell_runs_again(path: Path, tmp_path: Path) -> None:
    """In one kernel: the student's version, the solutions, the solutions from the last cell to the first."""
    student, solved = nbformat.read(FOLDER / path.name, 4), nbformat.read(path, 4)
    cells = [cell for cell in solved.cells if cell.cell_type == "code"]
    cells = [cell for cell in cells if "parameters" not in cell.metadata.get("tags", [])]
    source, mistakes = THERE.get(path.name[0], ("[]", ()))
    parts = [student.cells, _named("down", cells), _named("up", cells[::-1])]
    tried = nbformat.v4.new_code_cell(source, id="tried")
    together = nbformat.from_dict({**student, "cells": [cell for part in parts for cell in part] + [tried]})
    nbformat.write(together, tmp_path / "together.ipynb")
    executed = execute(tmp_path / "together.ipynb", tmp_path / "run", SMALL.get(path.name[0], {}), progress=False)
    run = nbformat.read(executed, 4).cells
    down, up = ([cell for cell in run if cell.id.startswith(f"{way}-")] for way in ("down", "up"))
    blank, right = verdicts(run[: run.index(down[0])]), verdicts(down)
    (message_text,) = (output["data"]["text/plain"] for output in run[-1].outputs)
    assert message_text.count(": not yet. ") == len(mistakes)
    assert [words for words in mistakes if words not in message_text] == []
    assert len(right) >= 4 and all(": right. " in text for text in right), right
    assert len(blank) == len(right)
    assert all(": to do. The question: " in text for text in blank), blank
    assert _texts(up[::-1]) == _texts(down)  # nothing that a cell shows depends on the order


def _named(way: str, cells: list[NotebookNode]) -> list[NotebookNode]:
    """Copies with ids of their own."""
    return [nbformat.from_dict({**cell, "id": f"{way}-{place}"}) for place, cell in enumerate(cells)]


def _texts(cells: list[NotebookNode]) -> list[str]:
    """What cells printed and returned, without the numbers of objects in memory and of figures."""
    texts = []
    for cell in cells:
        shown = [output.get("text") or output.get("data", {}).get("text/plain", "") + "\n" for output in cell.outputs]
        texts.append("".join(text for text in shown if not text.startswith("<Figure")))  # a text may come in parts
    return texts


def run() -> mnb.Run:
    return mnb.Run.open(DATA)


class Metrics:
    """A run whose curve is known: 0, 1, ... 9 for ten iterations."""

    def metrics(self) -> Any:
        import pandas as pd

        return pd.DataFrame({"frames": np.arange(1, 11) * 100, "returns/agent": np.arange(10.0)})


MUCH = "import time; held = b'x' * 200_000_000; begun = time.process_time()\n"
MUCH += "while time.process_time() < begun + 1: pass\ndel held"
WRONG: list[tuple[str, Any, dict[str, Any], str]] = [
    ("1.1", 3, {}, "how many the speaker observes"),
    ("1.1", 14, {}, "what both see together"),
    ("1.1", "eleven", {}, "one number"),
    ("1.1", "11", {}, "without quotes"),
    ("1.1", 88, {}, "8 games together"),
    ("1.1", 8, {}, "a part of it"),
    ("1.1", np.array("x"), {}, "is one number"),
    ("1.1", float("nan"), {}, "divided by 0, or is missing"),
    ("1.2", "message_0", {}, "Give a list of names"),
    ("1.2", [], {}, "The list is empty"),
    ("1.2", [8, 9, 10], {}, "Give their names"),
    ("1.2", np.array([8, 9, 10]), {}, "Give their names"),
    ("1.2", np.array(3), {}, "Give a list of names"),
    ("1.2", torch.tensor(3), {}, "Give a list of names"),
    ("1.2", ["message_0", "message_1"], {}, "one feature for each word"),
    ("1.2", ["landmark_0_dx"], {}, "seen by the listener itself"),
    ("1.2", ["goal_red"], {}, "That is what the speaker sees"),
    ("1.3", lambda seen: seen.argmin(-1), {}, "the smallest number"),
    ("1.3", lambda seen: seen, {}, "Return one: the index"),
    ("1.3", lambda seen: torch.zeros(len(seen)), {}, "the same goal in every game"),
    ("1.3", lambda seen: seen.max(-1).values, {}, "amounts of colour"),
    ("1.3", lambda seen: seen[0, 99], {}, "raised IndexError"),
    ("1.3", 2, {}, "without brackets"),
    ("1.3", lambda seen: seen.max(-1), {}, "values and places"),
    ("1.3", lambda seen: seen.argmax(), {}, "one for all games together"),
    ("1.3", lambda seen: seen.argmax(0), {}, "look along the games"),
    ("1.3", lambda seen: seen.argmax(-1, keepdim=True), {}, "left over"),
    ("1.3", lambda seen: seen.argmax(-1) + 1, {}, "counted from 0"),
    ("1.3", lambda seen: "red", {}, "yours gives 'red'"),
    ("1.4", 1.0, {}, "What does the message hold"),
    ("1.4", 0.5, {}, "How many landmarks"),
    ("1.4", 33, {}, "between 0 and 1"),
    ("1.4", 2 / 3, {}, "how many guesses are wrong"),
    ("1.4", "1/3", {}, "without quotes"),
    ("1.5", lambda dx, dy: dx * dx + dy * dy, {}, "the sign is not"),
    ("1.5", lambda dx, dy: -((dx * dx + dy * dy) ** 0.5), {}, "minus the distance"),
    ("1.5", lambda dx, dy: -abs(dx) - abs(dy), {}, "Pythagoras"),
    ("1.5", lambda dx, dy: (dx * dx + dy * dy) ** 0.5, {}, "That is the distance"),
    ("1.5", lambda dx, dy: -((dx + dy) ** 2), {}, "nearly cancel out"),
    ("1.5", lambda dx, dy: -(dx * dx + dy * dy) / 2, {}, "Half of it"),
    ("1.5", lambda dx, dy: -((dx * dx + dy * dy) ** 0.5) / 2, {}, "Half the distance.*2 away -4"),
    ("1.5", lambda dx, dy: -0.25 * bool(dx or dy), {}, r"For dx = 1, dy = 0 the environment pays -1; yours -0\.25"),
    (
        "1.5",
        lambda dx, dy: -(dx**2) - abs(dy) ** 3,
        {},
        r"dx = 0\.3, dy = -0\.4 the environment pays -0\.25; yours -0\.154",
    ),
    ("1.5", lambda dx, dy: 1 - dx * dx - dy * dy, {}, "At the goal itself"),
    ("1.5", lambda dx, dy: dx ^ dy, {}, r"a power is written \*\*"),
    ("4.1", mnb.PermuteChannel("listener", units=("message_*",), t=0), {}, "at some steps only"),
    ("2.1", -31, {}, "the sum of the table"),
    ("2.1", 11, {}, "the best that they can earn"),
    ("2.1", -3.4, {}, "Nearly"),
    ("2.1", 31 / 9, {}, "the sign is not"),
    ("2.1", -31 / 3, {}, "divided by 3"),
    ("2.1", -30, {}, "the worst that can happen"),
    ("2.2", 4.5, {"run": Metrics()}, "the whole training run"),
    ("2.2", 11, {"run": Metrics()}, "what they could earn"),
    ("2.2", 0, {"run": Metrics()}, "where they begin"),
    ("2.2", -8.5, {"run": Metrics()}, "the sign is not"),
    ("2.2", [8, 9], {"run": Metrics()}, "Which of these 2"),
    ("2.3", 78, {"run": run()}, "looks like an iteration"),
    ("2.3", 441_600, {"run": run()}, "a single iteration was above it"),
    ("2.3", 467_200, {"run": run()}, "also counts iterations that came later.*at -12"),
    ("2.3", 499.2, {"run": run()}, "counts thousands of frames: 499.2 there is 499,200 frames"),
    ("2.3", 0.5, {"run": run()}, "counts thousands of frames"),
    ("2.3", 2_000_000, {"run": run()}, "ended after 832,000"),
    ("2.3", -12, {"run": run()}, "not how high it is"),
    ("2.3", 300_000, {"run": run()}, "at -15.5, so not above"),
    ("2.3", 700_000, {"run": run()}, r"at -7\.7, above -12. But the question is the first"),
    ("2.4", "a", {}, "if drawn again"),
    ("2.4", "(C)", {}, "does not mean that they are equal"),
    ("2.4", "z", {}, "one of 'a', 'b', 'c', 'd'"),
    ("3.1", lambda episode: (np.arange(400), np.arange(300, 500)), {}, "in both"),
    ("3.1", lambda episode: np.split(np.random.default_rng(0).permutation(len(episode)), [400]), {}, "on both sides"),
    ("3.1", lambda episode: np.split(np.arange(len(episode)), [int(0.8 * len(episode))]), {}, "different lengths"),
    ("3.1", lambda episode: (np.arange(16), np.arange(16, 20)), {}, "numbers of episodes"),
    ("3.1", lambda episode: (np.flatnonzero(episode < 15), np.flatnonzero(episode > 15)), {}, "30 rows are in neither"),
    (
        "3.1",
        lambda episode: (np.repeat(np.flatnonzero(episode < 15), 2), np.flatnonzero(episode > 15)),
        {},
        "than once",
    ),
    ("3.1", lambda episode: (np.flatnonzero(episode < 5), np.flatnonzero(episode >= 5)), {}, "Fit to more"),
    ("3.1", lambda episode: print(end=""), {}, "Does it end in `return`"),
    ("3.1", lambda episode: (episode < 80, episode >= 80), {}, "does it count on 100"),
    ("3.1", lambda episode: (0.8, 0.2), {}, "is 0.8"),
    ("3.1", lambda episode: (-np.arange(1, 401), -np.arange(401, 501)), {}, "do not exist"),
    ("3.1", lambda episode: (episode != 0, episode == 0), {}, "Only one episode is tested"),
    ("3.2", "a", {}, "not that the network has done anything"),
    ("3.4", 100, {}, "Nearly"),
    ("3.4", 9, {}, "= 0.1"),
    ("3.4", 1000, {}, "fewer do as well"),
    ("3.4", -1, {}, "is counted"),
    ("3.2", "b", {}, "Luck is not the problem"),
    ("3.2", "d", {}, "look along the row"),
    ("4.1", mnb.BlockChannel("listener"), {}, "its surprise"),
    ("4.1", mnb.Ablate("listener/observation"), {}, "damaged"),
    ("4.1", mnb.PermuteChannel, {}, "a kind of edit"),
    ("4.1", mnb.PermuteChannel("speaker"), {}, "Edit what the listener hears"),
    ("4.1", [mnb.PermuteChannel("listener")], {}, "leave out the brackets"),
    ("4.1", mnb.Ablate("speaker/actor/head"), {}, "the same word in every game"),
    ("4.3", "c", {}, "more than was seen"),
    ("4.4", "a", {"tuned_cost": 1.0, "random_costs": [0.5, 1.1]}, "randomly drawn"),
    ("4.4", "b", {"tuned_cost": 1.0, "random_costs": [0.5, 0.9]}, "how many of your 2 random sets"),
    ("4.3", "a", {}, "not needed"),
    ("4.4", "a", {"tuned_cost": 2.0, "random_costs": []}, "no random sets to compare with"),
    ("4.4", "c", {"tuned_cost": 1.0, "random_costs": [0.5, 1.1]}, "above 0.*others do as much"),
    ("4.4", "c", {"tuned_cost": -0.3, "random_costs": [-0.5, -0.1]}, "nothing was lost.*others do as much"),
    ("4.1", mnb.PermuteChannel("listener", units=("velocity_*",)), {}, "leaves message_0, message_1, message_2"),
    ("4.1", mnb.PermuteChannel("listener", units=("*",)), {}, "also exchanges landmark_0_dx"),
    ("4.1", mnb.PermuteChannel("listener/actor/hidden_2", units=[0]), {}, "is not what the listener hears"),
]


@pytest.mark.parametrize(("name", "answer", "given", "message"), WRONG, ids=lambda value: str(value)[:20])
def test_a_mistake_is_explained(name: str, answer: Any, given: dict[str, Any], message: str) -> None:
    verdict = check(name, answer, **given)
    assert verdict.right is False and re.search(message, verdict.message), verdict


def test_what_a_student_wrote_is_shown_not_run_by_the_browser() -> None:
    shown = check("1.1", "<script>")._repr_html_()
    assert "&lt;script&gt;" in shown and "<script>" not in shown
    assert "end in <code>return</code>?" in check("1.3", lambda seen: print(end=""))._repr_html_()


def test_a_right_split_of_masks_is_right_as_well() -> None:
    assert check("3.1", lambda episode: (episode < 16, episode >= 16)).right


def test_right_answers_of_other_forms_and_numbers() -> None:
    names = ["velocity_x", "message_0", "message_1", "message_2"]
    assert check("1.2", (name for name in names if name.startswith("message"))).right
    assert check("4.1", mnb.PermuteChannel("listener", units=("message_*",))).right
    for random_costs, right in (([0.5, 1.1], "b"), ([0.5, 0.9], "a")):
        assert check("4.4", right, tuned_cost=1.0, random_costs=random_costs).right


def test_a_short_training_run_is_not_praised_for_settling_at_7() -> None:
    assert "where this curve ends" in check("2.2", 8.5, run=Metrics()).message


def test_a_check_by_hand_says_what_it_needs_from_the_notebook() -> None:
    assert check(1.1, 11).right and check("2.2").right is None
    for given in ({}, {"runs": 1}):
        with pytest.raises(ConfigError, match=r'check\("2.2", your answer, run=...\); got (no keywords|runs)'):
            check("2.2", 7, **given)


def test_choices_cannot_be_read_from_the_notebook_or_by_their_names() -> None:
    for name in ("2.4", "3.2", "4.3"):
        right = [option for option in "abcd" if check(name, option).right]
        assert len(right) == 1
    source = (ROOT / "marlnb" / "teaching" / "curves.py").read_text()
    assert '"d":' not in source and "'d':" not in source


def test_marks_tell_what_is_left() -> None:
    check("1.1", 3)
    check("1.4", 1 / 3)
    assert marks(1)["answer"].to_dict() == {
        "1.1": "not yet",
        "1.2": "to do",
        "1.3": "to do",
        "1.4": "right",
        "1.5": "to do",
    }
    with pytest.raises(ConfigError, match=r"no exercise '1\.9'"):
        check("1.9", 3)
    with pytest.raises(ConfigError, match="no chapter '7'"):
        marks(7)


def test_solutions_become_blanks() -> None:
    solved = "### BEGIN SOLUTION\na, b = 1, 2\nc = a\n### END SOLUTION\ncheck(c)"
    assert without_solutions(solved) == "".join(f"{name} = ...  # your answer\n" for name in "abc") + "check(c)"
    defined = "### BEGIN SOLUTION\nx: int = 1\nx = 2\ndef f(y):\n    return y\n### END SOLUTION"
    assert without_solutions(defined) == "x = ...  # your answer\nf = ...  # your answer"
    nested = "if run:\n    a = [k for k in b]\nwith c() as d:\n    for e in a:\n        f.g = h = e\n"
    blanked = without_solutions(f"### BEGIN SOLUTION\n{nested}### END SOLUTION")
    assert blanked == "\n".join(f"{name} = ...  # your answer" for name in "adeh")
    text = nbformat.v4.new_markdown_cell("Why?\n### BEGIN SOLUTION\nSeven.\n### END SOLUTION")
    noted = _notebook("x = 1  # your answer")
    noted.cells.append(text)
    assert student_version(noted).cells[-1].source == "Why?\n*your answer*"
    function = "def f(x):\n    ### BEGIN SOLUTION\n    return x\n    ### END SOLUTION\n\n\nf(1)"
    made = without_solutions(function)
    assert made == "def f(x):\n    pass  # your answer\n\n\nf(1)"
    ast.parse(made)
    magic = "### BEGIN SOLUTION\n%time a = 1\n### END SOLUTION"
    for wrong in (magic, "### BEGIN SOLUTION\na = 1", "### BEGIN SOLUTION\nprint(1)\n### END SOLUTION"):
        with pytest.raises(ConfigError):
            without_solutions(wrong)
    with pytest.raises(ConfigError, match="no cell has a solution"):
        student_version(_notebook("a = 1  # your answer"))


@pytest.mark.parametrize("mark", ["# {}", "###{}", "####  {}", "### {} \t", "### {}\r"])
def test_marks_may_be_spelled_a_little_differently(mark: str) -> None:
    begin, end = mark.format("BEGIN SOLUTION"), mark.format("END SOLUTION")
    assert without_solutions(f"{begin}\na = 1\n{end}\ncheck(a)").replace("\r", "") == "a = ...  # your answer\ncheck(a)"
    assert "return" not in without_solutions(f"def f():\n  {begin}\n  return 1\n  {end}")


@pytest.mark.parametrize(
    "begin", ["### begin solution", "### BEGIN-SOLUTION", "BEGIN SOLUTION", "### BEGIN SOLUTION: a"]
)
def test_a_mark_that_is_not_understood_is_an_error(begin: str) -> None:
    right = nbformat.v4.new_code_cell("### BEGIN SOLUTION\na = 1\n### END SOLUTION")
    for kind in (nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell):
        notebook = _notebook()
        notebook.cells += [
            right,
            kind(f"{begin}\nsecret = 42\n{begin.replace('BEGIN', 'END').replace('begin', 'end')}"),
        ]
        with pytest.raises(ConfigError, match=r"SOLUTION' needs|each '### BEGIN SOLUTION'"):
            student_version(notebook)


def _notebook(*sources: str) -> NotebookNode:
    first = nbformat.v4.new_code_cell('run = ""  # folder', metadata={"tags": ["parameters"]})
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return nbformat.v4.new_notebook(cells=[first, *map(nbformat.v4.new_code_cell, sources)], metadata=kernel)


def test_other_files_are_errors_in_plain_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notebook = tmp_path / "a.ipynb"
    notebook.write_text('{"a": 1}')
    assert main(["students", str(notebook), "--out", str(tmp_path / "out")]) == 2
    assert "a.ipynb is not a notebook" in capsys.readouterr().err
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")]), notebook)
    with pytest.raises(ConfigError, match=r"a\.ipynb has no cell tagged 'parameters'"):
        measure(notebook)


def test_memory_is_what_the_kernel_held(tmp_path: Path) -> None:
    for name, source in (("little", "pass"), ("much", MUCH)):
        nbformat.write(_notebook(source), tmp_path / f"{name}.ipynb")
    little, much = (measure(tmp_path / f"{name}.ipynb") for name in ("little", "much"))
    assert 150e6 < much.peak - little.peak < 260e6 and 150e6 < much.private - little.private < 260e6
    assert little.private < little.peak < 200e6
    assert 1 <= much.work_s < 30 and "s of one core" in str(much)  # what a kernel needs to begin depends on the machine
