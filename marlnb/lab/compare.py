"""Compare any selection of runs: what differs in their settings, and their curves, averaged over seeds only.

Runs are averaged (interquartile mean, with a bootstrap interval over runs) if all settings but those that are averaged
over are the same. An average that would mean nothing is not computed, and the answer says why.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from marlnb.errors import MarlnbError
from marlnb.training.runs.files import EXPERIMENT, METRICS, is_run, read_json
from marlnb.training.runs.rows import read_rows

Row = tuple[float, Mapping[str, float]]  # frames, and returns by group
SEED = "seed"
# settings that change how a training is stored and where it runs, not what it learns
IRRELEVANT = ("loggers", "checkpoint_every", "keep_checkpoints", "device", "threads", "profile", "tuned")
MAX_LABEL_SETTINGS = 3
N_POINTS = 100
N_BOOTSTRAP = 200
MAX_TESTED = 8  # settings of which every two are tested
LAST_SHARE = 0.1  # a score is the mean return of this last share of a training


def compare(paths: Sequence[str], *, average_over: Sequence[str] = (SEED,)) -> dict[str, Any]:
    """Compares runs.

    Args:
        paths: folders of runs.
        average_over: settings in which runs that are averaged may differ.
    Returns:
        runs: `path` and `problem`. differences: by setting, its value in each run; only settings that differ.
        curves: one for each setting and group of agents: label, runs, x, and value, low, high `[point]`; a single run
        has no interval. tests: as `_tests` returns them. refusals: what was not averaged, and why.
    """
    settings, problems = _settings(paths)
    readable = [path for path in paths if path in settings]
    differences = _differences([settings[path] for path in readable])
    refusals: list[str] = []
    curves: list[dict[str, Any]] = []
    shown = [key for key in differences if key not in average_over and not _is_part_of(key, IRRELEVANT)]
    for members in _same(readable, settings, average_over):
        label = _label(settings[members[0]], shown)
        reasons = _reasons(members, settings, average_over)
        refusals += [f"{label}: {reason}" for reason in reasons]
        for group in [[path] for path in members] if reasons else [members]:
            curves += _curves(
                label if len(group) > 1 or not reasons else f"{label}, {Path(group[0]).name}", group, refusals
            )
    environments = {json.dumps(settings[path].get("env.name")) for path in readable}
    if len(environments) > 1:
        refusals.append(
            f"the runs are of {len(environments)} environments, whose returns are on different scales: "
            f"{', '.join(sorted(map(json.loads, environments)))}; their curves are not comparable"
        )
    environment_of = {path: json.dumps(each.get("env.name")) for path, each in settings.items()}
    return {
        "tests": _tests(curves, environment_of, refusals),
        "runs": [{"path": path, "problem": problems.get(path, "")} for path in paths],
        "differences": {key: dict(zip(readable, values)) for key, values in differences.items()},
        "curves": curves,
        "refusals": list(dict.fromkeys(refusals)),
    }


def _settings(paths: Iterable[str]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """By path, a run's settings with joined names, as `algorithm.lr`; and why some cannot be read."""
    settings, problems = {}, {}
    for path in paths:
        try:
            if not is_run(path):
                raise MarlnbError(f"{path} is not a run folder any more")
            settings[path] = dict(_flat(read_json(Path(path) / EXPERIMENT)))
        except (OSError, MarlnbError) as error:
            problems[path] = str(error)
    return settings, problems


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, item in value.items():
        if isinstance(item, dict) and item:
            yield from _flat(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", item


def _differences(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    keys = dict.fromkeys(key for each in settings for key in each)
    values = {key: [each.get(key) for each in settings] for key in keys}
    return {key: row for key, row in values.items() if len({json.dumps(value) for value in row}) > 1}


def _same(
    paths: Sequence[str], settings: Mapping[str, Mapping[str, Any]], average_over: Sequence[str]
) -> list[list[str]]:
    """Runs whose settings are the same but for those that are averaged over."""
    ignored = (*average_over, *IRRELEVANT)
    groups: dict[str, list[str]] = {}
    for path in paths:
        rest = {key: value for key, value in settings[path].items() if not _is_part_of(key, ignored)}
        groups.setdefault(json.dumps(rest, sort_keys=True), []).append(path)
    return list(groups.values())


def _is_part_of(key: str, names: Iterable[str]) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in names)


def _label(settings: Mapping[str, Any], keys: Sequence[str]) -> str:
    """A setting in few words: its environment and algorithm where they differ, and the first others."""
    names = [str(settings.get(key)) for key in ("env.name", "algorithm.name") if key in keys]
    others = [f"{key}={_word(settings[key])}" for key in keys if key in settings and not key.endswith(".name")]
    words = [*names, *others[:MAX_LABEL_SETTINGS]]
    words += [f"{len(others) - MAX_LABEL_SETTINGS} more settings"] if len(others) > MAX_LABEL_SETTINGS else []
    return ", ".join(words) or f"{settings.get('algorithm.name', '')} on {settings.get('env.name', '')}"


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _reasons(
    members: Sequence[str], settings: Mapping[str, Mapping[str, Any]], average_over: Sequence[str]
) -> list[str]:
    """Why runs cannot be averaged; empty if they can."""
    reasons = []
    environments = {json.dumps({k: v for k, v in settings[m].items() if k.startswith("env.")}) for m in members}
    if len(environments) > 1:
        reasons.append(f"{len(members)} runs are not averaged: their environments differ")
    steps = {(settings[path].get("n_envs"), settings[path].get("rollout_steps")) for path in members}
    if len(steps) > 1:
        reasons.append(f"{len(members)} runs are not averaged: an iteration has different numbers of frames in them")
    seeds = [settings[path].get(SEED) for path in members]
    if tuple(average_over) == (SEED,) and len(set(map(str, seeds))) < len(seeds):
        reasons.append(f"{len(members)} runs are not averaged: some have the same seed, so they are not independent")
    return reasons


def _curves(label: str, members: Sequence[str], refusals: list[str]) -> list[dict[str, Any]]:
    """The curves of runs that can be averaged, one for each group of agents that earns differently."""
    from marlnb.training.shared_return import earn_differently

    read = _returns(members, refusals)
    if not read:
        return []
    first = max(rows[0][0] for rows in read.values())
    last = min(rows[-1][0] for rows in read.values())
    if last < first:
        refusals.append(f"{label}: {len(read)} runs have no frames in common")
        return []
    groups: list[str | None] = [None]
    if any(earn_differently(returns) for rows in read.values() for _, returns in rows):
        groups = list(next(iter(read.values()))[0][1])
    frames = [first + (last - first) * k / (N_POINTS - 1) for k in range(N_POINTS)]
    shared = {"runs": list(read), "x": frames}
    return [
        {
            "label": f"{label}, {group}" if group else label,
            "group": group or "",
            **shared,
            **_average(list(read.values()), group, frames),
        }
        for group in groups
    ]


def _returns(members: Sequence[str], refusals: list[str]) -> dict[str, list[Row]]:
    """By path, the rows that have returns."""
    read: dict[str, list[Row]] = {}
    for path in members:
        try:
            rows = read_rows(Path(path) / METRICS)
        except (OSError, MarlnbError) as error:
            refusals.append(str(error))
            continue
        known = [(row["frames"], row["returns"]) for row in rows if row.get("returns") and "frames" in row]
        known = [(frames, returns) for frames, returns in known if None not in returns.values()]
        if known:
            read[path] = known
        else:
            refusals.append(f"{path} has no return yet")
    return read


def _average(read: Sequence[Sequence[Row]], group: str | None, frames: Sequence[float]) -> dict[str, Any]:
    """value, low, high `[point]` at `frames`, and the score of each run and of all: `[value, low, high]`."""
    import numpy as np

    from marlnb.analysis.benchmarking.statistics import curve_band

    runs = []
    for rows in read:
        values = [returns.get(group) if group else next(iter(returns.values())) for _, returns in rows]
        runs.append(np.interp(frames, [x for x, _ in rows], np.array(values, float)))
    scores = [float(run[-max(1, round(LAST_SHARE * N_POINTS)) :].mean()) for run in runs]
    if len(runs) == 1:
        single = {"value": runs[0].tolist(), "low": None, "high": None, "score": [scores[0], None, None]}
        return {**single, "scores": scores}
    band = curve_band(np.stack(runs)[:, None], n_bootstrap=N_BOOTSTRAP)
    final = curve_band(np.array(scores)[:, None, None])
    curve = {name: getattr(band, name).tolist() for name in ("value", "low", "high")}
    return {**curve, "score": [float(getattr(final, name)[0]) for name in ("value", "low", "high")], "scores": scores}


def _tests(
    curves: Sequence[Mapping[str, Any]], environment_of: Mapping[str, str], refusals: list[str]
) -> list[dict[str, Any]]:
    """Every two settings with several runs of the same environment and group, the clearest difference first.

    Returns:
        better, worse: labels. probability: that a run of `better` has the higher score, `[value, low, high]`, as in the
        benchmark report. p: of the Mann-Whitney test of that, two-sided, corrected for the number of tests by Holm.
    """
    from scipy.stats import mannwhitneyu

    from marlnb.analysis.benchmarking.statistics import probability_of_improvement

    tasks: dict[tuple[str, str], dict[str, list[float]]] = {}  # scores by index of the curve
    for k, curve in enumerate(curves):
        if len(curve["runs"]) > 1:
            task = (environment_of[curve["runs"][0]], curve["group"])
            tasks.setdefault(task, {})[str(k)] = curve["scores"]
    tests: list[dict[str, Any]] = []
    for scores in tasks.values():
        if len(scores) > MAX_TESTED:
            refusals.append(f"{len(scores)} settings are not tested in pairs: select at most {MAX_TESTED}")
            continue
        matrices = {k: [[score] for score in values] for k, values in scores.items()}
        for (x, y), estimate in probability_of_improvement(matrices, n_bootstrap=N_BOOTSTRAP).items():
            if estimate.value > 0.5 or (estimate.value == 0.5 and int(x) < int(y)):
                is_constant = len({*scores[x], *scores[y]}) == 1
                p = 1.0 if is_constant else float(mannwhitneyu(scores[x], scores[y]).pvalue)
                names = {"better": curves[int(x)]["label"], "worse": curves[int(y)]["label"]}
                tests.append({**names, "probability": [estimate.value, estimate.low, estimate.high], "p": p})
    tests.sort(key=lambda test: test["p"])
    corrected = 0.0
    for k, test in enumerate(tests):
        corrected = max(corrected, min(1.0, test["p"] * (len(tests) - k)))
        test["p"] = corrected
    return tests
