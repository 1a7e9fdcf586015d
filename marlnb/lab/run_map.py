"""The map of runs by what their agents represent: `mnb.run_map` on observations that it records first.

The panel's kernel makes it in another process, so that it answers meanwhile and never holds torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from marlnb.errors import AnalysisError, MarlnbError

EPISODES = 20  # of one run, whose observations all runs receive
TIMEOUT_S = 280


def map_of_runs(paths: Sequence[str], site: str = "", agent: str = "") -> dict[str, Any]:
    """`mnb.run_map` in JSON.

    Args:
        paths: folders of runs. The first that can be written to gets a recording of 20 episodes, `map-<iteration>`.
        site: whose units are compared; empty: the last hidden layer of the first group's actor.
        agent: whose observations; empty: the first agent of the site.
    Returns:
        The map's paths, names, site, agent, returns `[run]`, positions `[run, 2]`, explained, verdict and warnings;
        choices: every site and agent; recording: its path; pairs: by index of the runs `a` and `b`, the least similar
        first, with the columns of `RunMap.table`.
    Raises:
        RunError, RecordingError, AnalysisError, SiteError: as `mnb.record` and `mnb.run_map`.
    """
    import numpy as np

    from marlnb.analysis.representations.run_map import run_map
    from marlnb.recording.capture.recorder import record
    from marlnb.training.runs.run import Run

    runs = [Run.open(path) for path in paths]
    source = next((run for run in runs if os.access(run.path, os.W_OK)), runs[0])
    name = f"map-{source.checkpoint().iteration}"
    with record(source, name=name, episodes=EPISODES, exist="open", progress=False) as shared:
        agents = {each: list(shared[each].labels["agent"]) for each in shared.sites if "/actor/" in each}
        if not agents:
            raise AnalysisError(f"{source.shown_path} has no network whose units can be compared")
        site = site or _default_site(list(agents))
        agent = agent or str(agents.get(site, [""])[0])
        result = run_map(runs, shared, site=site, agent=agent)
        table = result.table()
        pairs = table.drop(columns=["return_a", "return_b"]).to_dict("records")
        for pair in pairs:
            pair |= {end: result.runs.index(pair[end]) for end in ("a", "b")}
        return {
            "paths": [str(run.path) for run in runs],
            "names": list(result.runs),
            "site": site,
            "agent": agent,
            "choices": [(each, str(one)) for each, members in agents.items() for one in members],
            "returns": [float(value) if np.isfinite(value) else None for value in result.returns],
            "positions": result.positions.tolist(),
            "explained": result.explained,
            "verdict": result.verdict,
            "warnings": list(result.warnings),
            "recording": str(shared.path),
            "pairs": pairs,
        }


def map_in_a_process(paths: Sequence[str], site: str, agent: str) -> dict[str, Any]:
    """`map_of_runs` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "marlnb.lab.run_map"],
        input=json.dumps({"paths": list(paths), "site": site, "agent": agent}),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        raise MarlnbError(done.stderr.strip().rpartition("\n")[2] or f"the map ended with status {done.returncode}")
    answer: dict[str, Any] = json.loads(lines[-1])
    if "error" in answer:
        raise MarlnbError(answer["error"])
    return answer


def _default_site(sites: Sequence[str]) -> str:
    """The last hidden layer of the first group's actor."""
    of_first = [site for site in sites if site.startswith(sites[0].split("/")[0] + "/")]
    return next((site for site in reversed(of_first) if "hidden" in site), of_first[-1])


if __name__ == "__main__":
    try:
        print(json.dumps(map_of_runs(**json.load(sys.stdin))))
    except (MarlnbError, OSError) as error:
        print(json.dumps({"error": str(error)}))
