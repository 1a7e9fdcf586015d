"""check_claims: whether claims name only what an instance has: its agents, sites, units and outputs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from marlnb.errors import AnalysisError, unknown
from marlnb.groundtruth.planting import Planted
from marlnb.groundtruth.scoring.claims import Claim
from marlnb.groundtruth.scoring.finding import Finding

Widths = Mapping[str, Mapping[str, int]]


def check_claims(finding: Finding, planted: Planted) -> None:
    """Checks the claims of a finding that was read from a file.

    Raises:
        AnalysisError: a claim names an agent, site, unit or output that the instance does not have, a direction of
            another length, or something that is no number; or it is of a kind that is measured.
    """
    widths: Widths = {
        agent: {site.name: site.n_units for site in planted.policies[group.name].sites()}
        for group in planted.agents.spec.groups
        for agent in group.agents
    }
    for claim in finding.claims:
        if claim.measured:
            raise AnalysisError(f"claims of kind {claim.kind!r} are measured: leave them out of a submission")
        try:
            _check(claim, widths)
        except (TypeError, ValueError) as error:
            raise AnalysisError(f"a claim of kind {claim.kind!r} is malformed: {error}") from error


def _check(claim: Claim, widths: Widths) -> None:
    fields: dict[str, Any] = vars(claim)
    agents = [*fields.get("agents", ()), *(agent for pair in fields.get("pairs", ()) for agent in _two(pair))]
    sites = [_two(pair) for pair in fields.get("sites", ())]
    if "site" in fields:
        sites.append((fields["agent"], fields["site"]))
    elif "agent" in fields:
        agents.append(fields["agent"])
    for agent in (*agents, *(agent for agent, _ in sites)):
        if agent not in widths:
            raise AnalysisError(unknown("agent", str(agent), widths))
    for agent, site in sites:
        if site not in widths[agent]:
            raise AnalysisError(unknown(f"site of {agent}", str(site), widths[agent]))
    if "site" in fields:
        _check_units(widths[fields["agent"]], fields)
    for number in (*fields.get("code", ()), *(n for pair in fields.get("steps", ()) for n in _two(pair))):
        _whole(number, "number")
    _finite(fields.get("value", 0.0), "value")


def _check_units(width_of: Mapping[str, int], fields: Mapping[str, Any]) -> None:
    n_units = width_of[fields["site"]]
    for unit in fields.get("units", ()):
        if not 0 <= _whole(unit, "unit") < n_units:
            raise ValueError(f"{fields['site']} has the units 0 to {n_units - 1}, got {unit}")
    for direction in (*fields.get("basis", ()), *([fields["direction"]] if "direction" in fields else [])):
        if not isinstance(direction, tuple) or len(direction) != n_units:
            raise ValueError(f"expected {n_units} finite numbers for a direction at {fields['site']}, got {direction}")
        for number in direction:
            _finite(number, f"number in a direction at {fields['site']}")
    if "basis" in fields and not fields["basis"]:
        raise ValueError("expected a basis of at least one direction, got none")
    if "output" in fields:
        n_outputs = next(width for site, width in width_of.items() if site.endswith("/actor/head"))
        if not 0 <= _whole(fields["output"], "output") < n_outputs:
            raise ValueError(f"{fields['agent']} has the outputs 0 to {n_outputs - 1}, got {fields['output']}")


def _two(pair: Any) -> tuple[Any, Any]:
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise ValueError(f"expected a pair, got {pair!r}")
    return pair[0], pair[1]


def _whole(number: Any, what: str) -> int:
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError(f"expected a whole {what}, got {number!r}")
    return number


def _finite(number: Any, what: str) -> None:
    if not isinstance(number, int | float) or isinstance(number, bool) or not abs(number) <= sys.float_info.max:
        raise ValueError(f"expected a finite {what}, got {number!r}")
