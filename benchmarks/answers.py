"""How long the analyses take on `data/speaker_listener`: 200 episodes, 5,000 rows, two layers of 64 units, two cores.

    python -m benchmarks.answers [--repetitions 3] [--only decode usage]

Each analysis has its defaults, so every control is included. It is timed in one process, after the imports and after
the recording is opened. CPU time counts all threads.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import marlnb as mnb
from benchmarks.table import Row, report
from marlnb.analysis.decoding.result import Decoding
from marlnb.analysis.results import Result
from marlnb.recording.file.reader import Recording

RUN = Path(__file__).parents[1] / "data" / "speaker_listener"
SITE = "listener/actor/hidden_2"
TARGETS_S = {"decode": 2, "decode over time": 5, "attribute": 2, "influence": 2, "usage": 2}


def analyses(recording: Recording, run: Path, decoding: Decoding) -> dict[str, Callable[[], Result]]:
    """The measured calls, by name."""
    return {
        "decode": lambda: mnb.decode(recording, site=SITE, label="goal", progress=False),
        "decode over time": lambda: mnb.decode(recording, site=SITE, label="goal", at="each", progress=False),
        "attribute": lambda: mnb.attribute(recording, group="listener", to="action", progress=False),
        "influence": lambda: mnb.influence(recording, progress=False),
        "usage": lambda: mnb.usage(run, decoding, progress=False),
        "tuning": lambda: mnb.tuning(recording, site=SITE, label="goal"),
    }


def seconds(analysis: Callable[[], Result]) -> tuple[float, float]:
    """By the clock, and of CPU time."""
    clock, cpu = time.perf_counter(), time.process_time()
    analysis()
    return time.perf_counter() - clock, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--only", nargs="+", help="names of the analyses")
    arguments = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        run = Path(shutil.copytree(RUN, Path(folder) / "run"))
        with mnb.record(run, episodes=arguments.episodes, progress=False) as recording:
            decoding = mnb.decode(recording, site=SITE, label="goal", episodes=range(50), n_shuffles=1, progress=False)
            calls = analyses(recording, run, decoding)
            for name in arguments.only or calls:
                seconds(calls[name])  # imports what it needs
                clock, cpu = zip(*(seconds(calls[name]) for _ in range(arguments.repetitions)))
                rows.append(Row(name, clock, "s", target=TARGETS_S.get(name), at_most=True))
                rows.append(Row(f"{name}, CPU time", cpu, "CPU s"))
    report("answers", f"Analyses of {arguments.episodes} episodes of data/speaker_listener", rows)


if __name__ == "__main__":
    main()
