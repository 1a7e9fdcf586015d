"""Compare any selection of runs: what differs in their settings, and their curves, averaged over seeds only.

Runs are averaged (interquartile mean, with a bootstrap interval over runs) if all settings but those that are averaged
over are the same. An average that would mean nothing is not computed, and the answer says why.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import comb, nan
from pathlib import Path
from typing import Any

from marlnb.display.formatting import count
from marlnb.errors import MarlnbError
from marlnb.training.runs.comparable import (
    CODE,
    IRRELEVANT,
    SEED,
    differences,
    distinct_names,
    groups_to_average,
    is_part_of,
    read_settings,
    reasons_against_average,
)
from marlnb.training.runs.files import METRICS, is_run
from marlnb.training.runs.metrics_rows import read_rows

Row = tuple[float, Mapping[str, float]]  # frames, and returns by group
Points = tuple[list[float], list[float]]  # frames, and returns of a group
Scored = tuple[dict[str, Any], list[Points]]  # a curve, and those of its runs
NAMES = ("env.name", "algorithm.name")  # in a label without their keys
MIN_LABEL_SETTINGS = 3  # shown in a label, if so many differ
N_BOOTSTRAP = 200
MAX_TESTED = 8  # settings of which every two are tested
LAST_SHARE = 0.1  # a score is the mean return of this last share of a training run
SAME_LENGTH = 0.95  # training runs that differ by less are equally long: iterations end at different frames


def compare(paths: Sequence[str], *, average_over: Sequence[str] = (SEED,)) -> dict[str, Any]:
    """Compares runs.

    Args:
        paths: folders of runs.
        average_over: settings in which runs that are averaged may differ.
    Returns:
        runs: `path`, `name` and `problem`. differences: by setting, its value in each run that has it; only settings
        that differ; `code` is the code that trained a run. choices: those that can be averaged over. curves: one for
        each setting and group of agents: label, runs, x, and value, low, high `[point]`; a single run has no interval.
        tests: as `_tests` returns them. refusals: what was not averaged, and why.
    """
    settings, problems = _settings(paths)
    readable = [path for path in paths if path in settings]
    names = dict(zip(readable, distinct_names(readable)))
    environment_of = {path: str(settings[path].get("env.name")) for path in readable}
    differing = differences([settings[path] for path in readable])
    refusals: list[str] = []
    rows = _returns(readable, refusals)
    by_group = _rewarding_differently(rows, environment_of)
    averages: list[Scored] = []
    choices = [key for key in differing if not is_part_of(key, (*IRRELEVANT, CODE))]
    groups = groups_to_average({path: settings[path] for path in readable}, average_over)
    labels = _labels([settings[members[0]] for members in groups], [key for key in choices if key not in average_over])
    for label, members in zip(labels, groups):
        reasons = reasons_against_average({path: settings[path] for path in members}, average_over)
        refusals += [f"{label}: {reason}" for reason in reasons]
        for group in [[path] for path in members] if reasons else [members]:
            averages += _curves(
                f"{label}, {names[group[0]]}" if reasons else label,
                {path: rows[path] for path in group if path in rows},
                names,
                refusals,
                by_group=environment_of[group[0]] in by_group,
            )
    environments = set(environment_of.values())
    if len(environments) > 1:
        refusals.append(
            f"the runs are of {len(environments)} environments, whose returns are on different scales: "
            f"{', '.join(sorted(environments))}; their curves are not comparable"
        )
    tasks: dict[tuple[str, str], list[Scored]] = {}  # by environment and group of agents
    for curve, points in averages:
        tasks.setdefault((environment_of[curve["runs"][0]], curve["group"]), []).append((curve, points))
    comparable = [task for task in tasks.values() if _score_common_frames(task, refusals)]
    curves = [curve for curve, _ in averages]
    return {
        "tests": _tests([_several_runs(task) for task in comparable], refusals),
        "runs": [{"path": path, "name": names.get(path, ""), "problem": problems.get(path, "")} for path in paths],
        "choices": choices,
        "differences": {
            key: {path: settings[path][key] for path in readable if key in settings[path]} for key in differing
        },
        "curves": curves,
        "refusals": list(dict.fromkeys(refusals)),
    }


def _settings(paths: Iterable[str]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """By path, a run's settings with joined names; and why some cannot be read."""
    settings, problems = {}, {}
    for path in paths:
        try:
            if not is_run(path):
                raise MarlnbError(f"{path} is not a run folder any more")
            settings[path] = read_settings(Path(path))
        except (OSError, MarlnbError) as error:
            problems[path] = str(error)
    return settings, problems


def _labels(groups: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[str]:
    """The settings of each group in few words: environment and algorithm where they differ, and those others that tell
    the groups apart, or the first ones."""
    names = [key for key in NAMES if key in keys]
    others = [key for key in keys if key not in names]
    shown: list[str] = []
    for key in others:
        labels, longer = ({tuple(_words(each, [*names, *part])) for each in groups} for part in (shown, [*shown, key]))
        if len(longer) > len(labels):
            shown.append(key)
    rest = [key for key in others if key not in shown][max(0, MIN_LABEL_SETTINGS - len(shown)) :]
    return [_label(each, [*names, *(key for key in others if key not in rest)], rest) for each in groups]


def _label(settings: Mapping[str, Any], keys: Sequence[str], rest: Sequence[str]) -> str:
    """The keys with their values, and how many of the rest there are."""
    words, n_more = _words(settings, keys), sum(key in settings for key in rest)
    words += [count(n_more, "more setting")] if n_more else []
    return ", ".join(words) or f"{settings.get('algorithm.name', '')} on {settings.get('env.name', '')}"


def _words(settings: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    words = {key: _word(settings[key]) for key in keys if key in settings}
    return [word if key in NAMES else f"{key}={word}" for key, word in words.items()]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _rewarding_differently(rows: Mapping[str, Sequence[Row]], environment_of: Mapping[str, str]) -> set[str]:
    """The environments in which groups of agents earned differently in any of the runs.

    A run does not say that alone: hunters and prey may both have earned 0 in it.
    """
    from marlnb.training.shared_return import earn_differently

    return {environment_of[path] for path, of_run in rows.items() if any(earn_differently(row[1]) for row in of_run)}


def _curves(
    label: str, read: Mapping[str, Sequence[Row]], names: Mapping[str, str], refusals: list[str], *, by_group: bool
) -> list[Scored]:
    """The curves of runs that can be averaged, one for all agents or one for each group, and the runs'.

    Args:
        read: by path, the rows of the runs.
        names: of the paths, for messages.
    """
    from marlnb.analysis.benchmarking.run_curves import average_curves

    if not read:
        return []
    groups = list(next(iter(read.values()))[0][1]) if by_group else [None]
    curves = []
    for group in groups:
        points = [_points(rows, group) for rows in read.values()]
        average = average_curves(points)
        if average is None:
            refusals.append(f"{label}: {len(read)} runs have no frames in common")
            return []
        refusals += _shortened(label, {names[path]: rows[-1][0] for path, rows in read.items()})
        low, high = (None if end is None else end.tolist() for end in (average.low, average.high))
        curve = {"x": average.x.tolist(), "value": average.value.tolist(), "low": low, "high": high}
        name = f"{label}, {group}" if group else label
        scores = _scores(average.runs)
        curves.append(({"label": name, "group": group or "", "runs": list(read), **curve, **scores}, points))
    return curves


def _shortened(label: str, ends: Mapping[str, float]) -> list[str]:
    """What is not shown of runs that are further than the slowest; `ends` has the last frames of each."""
    slowest, furthest = min(ends, key=lambda name: ends[name]), max(ends.values())
    if ends[slowest] >= SAME_LENGTH * furthest:
        return []
    what = f"up to {int(ends[slowest]):,} frames, where {slowest} is; others have {int(furthest):,}"
    return [f"{label}: averaged and scored {what}"]


def _points(rows: Sequence[Row], group: str | None) -> Points:
    """Frames and returns of a group; None: of any, since all earn the same."""
    values = [returns.get(group, nan) if group else next(iter(returns.values())) for _, returns in rows]
    return [frames for frames, _ in rows], values


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


def _scores(runs: Any) -> dict[str, Any]:
    """The score of each run `[run, point]`, and of all: `[value, low, high]`."""
    import numpy as np

    from marlnb.analysis.benchmarking.statistics import curve_band

    scores = runs[:, -max(1, round(LAST_SHARE * runs.shape[1])) :].mean(1)
    if len(scores) == 1:
        return {"score": [float(scores[0]), None, None], "scores": scores.tolist()}
    final = curve_band(np.asarray(scores)[:, None, None])
    return {"score": [float(getattr(final, name)[0]) for name in ("value", "low", "high")], "scores": scores.tolist()}


def _score_common_frames(task: Sequence[Scored], refusals: list[str]) -> bool:
    """Scores the curves of an environment and group at the same frames, those of the slowest; False: it has none."""
    import numpy as np

    from marlnb.analysis.benchmarking.run_curves import N_POINTS

    starts, ends = ([curve["x"][end] for curve, _ in task] for end in (0, -1))
    first, last = max(starts), min(ends)
    if last >= SAME_LENGTH * max(ends):
        return True
    slowest = task[ends.index(last)][0]["label"]
    is_tested = 1 < len(_several_runs(task)) <= MAX_TESTED
    if first > last:
        latest = task[starts.index(first)][0]["label"]
        refusals.append(
            f"{latest} has its first return at {int(first):,} frames, {slowest} its last one at {int(last):,}: they "
            "have no frames in common, so each score is at a curve's own last frames"
            + ("; nothing is tested until one of the two is deselected" if is_tested else "")
        )
        return False
    frames = np.linspace(first, last, N_POINTS)
    for curve, runs in task:
        curve.update(_scores(np.stack([np.interp(frames, *points) for points in runs])))
    labels = " and ".join(curve["label"] for curve, _ in task if curve["x"][-1] > last)
    verb = "scored and tested" if is_tested else "scored"
    refusals.append(f"{labels}: {verb} at {int(last):,} frames, where the slowest setting is: {slowest}")
    return True


def _several_runs(task: Sequence[Scored]) -> list[dict[str, Any]]:
    """The settings that can be tested."""
    return [curve for curve, _ in task if len(curve["runs"]) > 1]


def _tests(tasks: Sequence[Sequence[Mapping[str, Any]]], refusals: list[str]) -> list[dict[str, Any]]:
    """Every two settings with several runs of the same environment and group, the clearest difference first.

    Args:
        tasks: the curves of each environment and group.
    Returns:
        better, worse: labels. probability: that a run of `better` has the higher score, `[value, low, high]`, as in the
        benchmark report. p: of the Mann-Whitney test of that, two-sided, corrected for the number of tests by Holm.
    """
    from marlnb.analysis.benchmarking.statistics import probability_of_improvement

    tests: list[dict[str, Any]] = []
    for curves in tasks:
        scores = {str(k): curve["scores"] for k, curve in enumerate(curves)}
        if len(scores) > MAX_TESTED:
            refusals.append(f"{len(scores)} settings are not tested in pairs: select at most {MAX_TESTED}")
            continue
        matrices = {k: [[score] for score in values] for k, values in scores.items()}
        for (x, y), estimate in probability_of_improvement(matrices, n_bootstrap=N_BOOTSTRAP).items():
            if estimate.value > 0.5 or (estimate.value == 0.5 and int(x) < int(y)):
                names = {"better": curves[int(x)]["label"], "worse": curves[int(y)]["label"]}
                p = _p_value(scores[x], scores[y])
                tests.append({**names, "probability": [estimate.value, estimate.low, estimate.high], "p": p})
    tests.sort(key=lambda test: test["p"])
    corrected = 0.0
    for k, test in enumerate(tests):
        corrected = max(corrected, min(1.0, test["p"] * (len(tests) - k)))
        test["p"] = corrected
    return tests


def _p_value(x: Sequence[float], y: Sequence[float]) -> float:
    """Of the Mann-Whitney test, two-sided: exact for up to seven runs each, where scores are equal too."""
    from scipy.stats import PermutationMethod, mannwhitneyu

    if len({*x, *y}) == 1:
        return 1.0
    every_order = PermutationMethod()
    is_exact = comb(len(x) + len(y), len(x)) <= every_order.n_resamples
    return float(mannwhitneyu(x, y, method=every_order if is_exact else "auto").pvalue)
