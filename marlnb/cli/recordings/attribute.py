"""Explain what drove an output of a group's agents, over a recording: a table, a figure and the values.

The files are written next to the recording, in <recording>.attributions/, or where --out says; nothing is overwritten.

  marlnb attribute runs/talk/recordings/recording.h5 --group listener
  marlnb attribute runs/talk/recordings/recording.h5 --group listener --to value --method saliency --out talk
  marlnb attribute runs/talk/recordings/recording.h5 --group listener --to unit --target listener/actor/hidden_1 3
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from marlnb.cli.output import print_table, print_text, say
from marlnb.cli.trust_option import add_trust_argument, trust_if_asked
from marlnb.errors import AnalysisError

if TYPE_CHECKING:
    import pandas as pd

    from marlnb.analysis.attribution.config import AttributionConfig
    from marlnb.analysis.attribution.result import Attribution

N_TABLE_ROWS, MIN_ROWS_PER_AGENT, MAX_BARS = 20, 5, 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from marlnb.analysis.attribution.config import AttributionConfig
    from marlnb.cli.options import add_config_options

    parser.add_argument("recording", metavar="FILE", help="a recording, RUN/recordings/NAME.h5")
    add_config_options(parser, AttributionConfig)
    parser.add_argument("--out", type=Path, metavar="PREFIX", help="writes PREFIX.h5, PREFIX.csv and PREFIX.png")
    add_trust_argument(parser)


def run(arguments: argparse.Namespace) -> None:
    from marlnb.analysis.attribution.attribute import attribute
    from marlnb.analysis.attribution.config import AttributionConfig
    from marlnb.cli.options import config_from
    from marlnb.recording.file.reader import Recording

    config = config_from(arguments, AttributionConfig)
    prefix = arguments.out or default_prefix(Path(arguments.recording), config)
    files = {suffix: prefix.with_name(f"{prefix.name}.{suffix}") for suffix in ("h5", "csv", "png")}
    existing = [str(path) for path in files.values() if path.exists()]
    if existing:
        raise AnalysisError(f"{', '.join(existing)} exist already; --out PREFIX writes elsewhere")
    with Recording.open(arguments.recording) as recording:
        trust_if_asked(arguments, recording)
        attribution = attribute(recording, config)
    table = attribution.summary().sort_values(["agent", "mean_abs"], ascending=[True, False])
    prefix.parent.mkdir(parents=True, exist_ok=True)
    attribution.save(files["h5"])
    table.to_csv(files["csv"], index=False)
    acting = set(table.dropna(subset=["mean_abs"])["agent"])
    if acting:
        _draw(attribution, [agent for agent in attribution.agents if agent in acting], files["png"])
    else:
        del files["png"]
    top = top_rows_of_each_agent(table)
    print_table(list(table.columns), top.to_numpy(dtype=object).tolist())
    if len(top) < len(table):
        say(f"the features with the largest values for each agent; all {len(table):,} are in {files['csv']}")
    for warning in attribution.warnings:
        say(f"warning: {warning}")
    print_text("\n".join(str(path) for path in files.values()))


def top_rows_of_each_agent(table: pd.DataFrame, n_rows: int = N_TABLE_ROWS) -> pd.DataFrame:
    """About `n_rows` rows of a sorted table: equally many of every agent, and at least five."""
    agents = table.groupby("agent", sort=False)
    return agents.head(max(MIN_ROWS_PER_AGENT, n_rows // len(agents)))


def default_prefix(recording: Path, config: AttributionConfig) -> Path:
    """`<recording>.attributions/`, and a name made of what is explained and how."""
    target = "-".join(map(str, config.target)) if isinstance(config.target, tuple) else config.target
    parts = (config.group, config.agent, config.to, target, config.site, config.method, config.sources)
    name = "-".join(str(part) for part in parts if part is not None)
    return recording.with_suffix(".attributions") / name.replace("/", "_")


def _draw(attribution: Attribution, agents: Sequence[str], path: Path) -> None:
    """The bars of agents that acted, one below another."""
    from marlnb.plots.attribution import attribution_bars
    from marlnb.plots.canvas import PlainFigure

    n_bars = min(MAX_BARS, len(attribution.feature_names))
    figure = PlainFigure(figsize=(7.0, (1.6 + 0.27 * n_bars) * len(agents)))
    axes = figure.subplots(len(agents), 1, squeeze=False)
    for ax, agent in zip(axes[:, 0], agents):
        attribution_bars(attribution, agent=agent, agents=attribution.agents, ax=ax)
    figure.savefig(path, dpi=150)
