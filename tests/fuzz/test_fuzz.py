"""A short form of `make fuzz`, and every input that had a wrong outcome: right answers, or errors of marlnb's own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz.__main__ import SAMPLES, Part, make_target, planned, read_log
from tests.fuzz.changed_folders import FolderTarget
from tests.fuzz.processes import RIGHT, Target, try_in_processes

CORPUS = Path(__file__).parent / "corpus"
SHORT = {
    **dict.fromkeys(("overrides", "run_folders", "league_folders", "evolution_folders", "batch_folders"), 12),
    **dict.fromkeys(("yaml_files", "checkpoints", "recordings", "marl_eval_files"), 16),
    "messages": 120,
}


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.timeout(240)
def test_random_inputs_and_those_of_the_corpus(kind: str, tmp_path: Path) -> None:
    target = make_target(kind, tmp_path)
    if isinstance(target, FolderTarget):
        target.copy.mkdir()  # as a process leaves it that a hang ended: the next input has to be tried all the same
    kept = sorted((CORPUS / kind).glob("*")) if (CORPUS / kind).is_dir() else []
    drawn = [target.draw(np.random.default_rng([7, number])) for number in range(SHORT[kind])]
    inputs = list(enumerate([*(path.read_bytes() for path in kept), *drawn]))
    outcomes = []
    for number, _, (outcome, text) in try_in_processes(target, inputs):
        name = kept[number].name if number < len(kept) else f"input {number - len(kept)} of seed 7"
        is_other_recording = kind == "recordings" and number < len(kept) and outcome == "changed"
        assert outcome in RIGHT or is_other_recording, f"{name}: {outcome}: {text}"
        outcomes.append(outcome)
    assert len(outcomes) == len(inputs) and "refused" in outcomes


class Broken:
    """A target with a wrong outcome of every kind."""

    def draw(self, generator: object) -> bytes:
        return b""

    def outcome(self, data: bytes) -> tuple[str, str]:
        import faulthandler
        import os
        import time

        if data == b"traceback":
            raise ValueError("not marlnb's")
        if data == b"crash":
            faulthandler.disable()  # its report would look like a failure of the tests
            os.abort()
        if data == b"hang":
            while True:
                time.process_time()
        return "accepted", data.decode()


def test_wrong_outcomes_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.processes.LIMIT_S", 0.3)
    inputs = [b"right", b"traceback", b"crash", b"right", b"hang", b"right"]
    target: Target = Broken()
    outcomes = [outcome for _, _, outcome in try_in_processes(target, list(enumerate(inputs)))]
    assert [kind for kind, _ in outcomes] == ["accepted", "traceback", "crash", "accepted", "hang", "accepted"]
    assert outcomes[1][1].startswith("ValueError in ") and outcomes[2][1] == "signal 6"
    assert "test_fuzz.py" in outcomes[4][1] and "in outcome" in outcomes[4][1]


def test_all_kinds_take_turns_and_an_interrupted_command_continues(tmp_path: Path) -> None:
    parts = planned({"overrides": 300, "recordings": 100}, times=2, seed=3, start=0)
    assert [(part.kind, part.start, part.n) for part in parts] == [
        *(("overrides", 0, 200), ("overrides", 200, 100), ("recordings", 0, 100)),
        *(("overrides", 300, 200), ("overrides", 500, 100), ("recordings", 100, 100)),
    ]
    log = tmp_path / "log"
    log.write_text(
        '{"part": {"kind": "overrides", "seed": 3, "start": 0, "n": 200}, "outcomes": {"refused": 200}, "wrong": {}}\n{'
    )
    assert read_log(log) == {Part("overrides", 3, 0, 200): (Counter(refused=200), Counter())}
