"""Explain what drove an output of a group's agents, over a recording: a table, a figure and the values.

They are written beside the recording, in <recording>.attributions/, or where --out says; nothing is overwritten.

  marlnb attribute runs/talk/recordings/recording.h5 --group listener
  marlnb attribute runs/talk/recordings/recording.h5 --group listener --to value --method saliency --out talk
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marlnb.cli.output import print_table, say
from marlnb.errors import AnalysisError

if TYPE_CHECKING:
    import pandas as pd

    from marlnb.analysis.attribution.result import Attribution


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", metavar="FILE", help="a recording, RUN/recordings/NAME.h5")
    parser.add_argument("--group", required=True, help="whose output is explained")
    parser.add_argument("--agent", help="one agent of the group (default: all of them)")
    parser.add_argument(
        "--to", default="action", metavar="OUTPUT", help="action, logit, log_prob or value (default action)"
    )
    parser.add_argument(
        "--target", metavar="CHOICE", help="index or name of the choice or component, where --to needs one"
    )
    parser.add_argument(
        "--method",
        default="integrated_gradients",
        help="integrated_gradients, saliency, input_x_gradient, deeplift or feature_ablation (default %(default)s)",
    )
    parser.add_argument("--baseline", default="mean", metavar="mean|zero", help="what features are compared with")
    parser.add_argument("--n-steps", type=int, default=50, metavar="N", help="quadrature points (default %(default)s)")
    parser.add_argument(
        "--sources",
        metavar="own|all|state",
        help="the agent's own observation, every agent's, or (of values) the state",
    )
    parser.add_argument("--episodes", type=int, nargs="+", metavar="K", help="indices of episodes (default: all)")
    parser.add_argument("--out", type=Path, metavar="PREFIX", help="writes PREFIX.h5, PREFIX.csv and PREFIX.png")


def run(arguments: argparse.Namespace) -> int:
    from marlnb.recording.file.reader import Recording

    with Recording.open(arguments.recording) as recording:
        prefix = arguments.out or _default_prefix(arguments)
        files = _free_files(prefix)
        from marlnb.analysis.attribution.attribute import attribute

        found = attribute(recording, group=arguments.group, **_choices(arguments))
    table = found.summary().sort_values(["agent", "mean_abs"], ascending=[True, False])
    prefix.parent.mkdir(parents=True, exist_ok=True)
    found.save(files["h5"])
    table.to_csv(files["csv"], index=False)
    _draw(found, files["png"])
    shown = most_of_each_agent(table)
    print_table(list(table.columns), shown.to_numpy(dtype=object).tolist())
    if len(shown) < len(table):
        say(f"those that matter most to each agent; all {len(table):,}: {files['csv']}")
    for warning in found.warnings:
        say(f"not to be trusted: {warning}")
    print("\n".join(str(path) for path in files.values()))
    return 0


def most_of_each_agent(table: pd.DataFrame, rows: int = 20) -> pd.DataFrame:
    """About `rows` rows of a sorted table, as many of every agent, and at least five of each."""
    agents = table.groupby("agent", sort=False)
    return agents.head(max(5, rows // len(agents)))


def _choices(arguments: argparse.Namespace) -> dict[str, Any]:
    target = arguments.target
    return {
        "to": arguments.to,
        "target": int(target) if target is not None and target.lstrip("-").isdigit() else target,
        "agent": arguments.agent,
        "method": arguments.method,
        "baseline": arguments.baseline,
        "n_steps": arguments.n_steps,
        "sources": arguments.sources,
        "episodes": arguments.episodes,
    }


def _default_prefix(arguments: argparse.Namespace) -> Path:
    what = "-".join(
        str(part)
        for part in (
            arguments.group,
            arguments.agent,
            arguments.to,
            arguments.target,
            arguments.method,
            arguments.sources,
        )
        if part is not None
    )
    return Path(arguments.recording).with_suffix(".attributions") / what.replace("/", "_")


def _free_files(prefix: Path) -> dict[str, Path]:
    files = {suffix: prefix.with_name(f"{prefix.name}.{suffix}") for suffix in ("h5", "csv", "png")}
    there = [str(path) for path in files.values() if path.exists()]
    if there:
        raise AnalysisError(f"{', '.join(there)} exist already; --out PREFIX writes elsewhere")
    return files


def _draw(found: Attribution, path: Path) -> None:
    from matplotlib.figure import Figure

    from marlnb.plots.attribution import attribution_bars

    rows = min(20, len(found.feature_names))
    figure = Figure(figsize=(7.0, (1.6 + 0.27 * rows) * len(found.agents)), layout="constrained")
    axes = figure.subplots(len(found.agents), 1, squeeze=False)
    for ax, agent in zip(axes[:, 0], found.agents):
        attribution_bars(found, agent=agent, agents=found.agents, ax=ax)
    figure.savefig(path, dpi=150)
