"""HTML that marlnb makes of names from outside, as a run folder or a JSON file of another person may hold them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import marlnb as mnb
from marlnb.allocations import Allocation
from marlnb.analysis.concepts.result import ConceptScore, Tcav
from marlnb.display.notebook_html import facts_html, folded_html, picture_html, styled, table_html
from marlnb.populations.league.matches import Match
from marlnb.populations.league.payoff import PayoffTable
from marlnb.populations.league.player_log import PlayerEvent
from marlnb.populations.league.summary import LeagueSummary, summarise
from marlnb.recording.capture.plan import plan_recording
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.layout import row_paths
from marlnb.specs import ActionSpec, GroupSpec, ObservationSpec
from marlnb.teaching.checking import Verdict
from marlnb.widgets.core import style
from marlnb.widgets.microscope.unit_panel import _curve_html
from tests.display.hostile_objects import made_animation, other_pages, panel_pages
from tests.recording.runs import LivesConfig, make_run

LABEL = "<img src=x onerror=alert(1)>"
HOSTILE = f'{LABEL}"\'&`</style></pre><script>alert(2)</script>" onerror="alert(3)" \''


def built_pages() -> list[str]:
    """What the builders and the results make of a hostile name."""
    table = pd.DataFrame({HOSTILE: [HOSTILE], "frames": [1234.5]})
    score = ConceptScore(**dict.fromkeys(ConceptScore.__dataclass_fields__, np.nan) | {"agent": HOSTILE})
    shown = (
        Tcav(HOSTILE, HOSTILE, HOSTILE, "pattern", 2, (score,), (HOSTILE,), (HOSTILE,), (HOSTILE,)),
        Verdict(HOSTILE, True, HOSTILE),
        Allocation("slurm", HOSTILE, HOSTILE, 1, (HOSTILE,), None, None, None),
        GroupSpec(HOSTILE, (HOSTILE, "b"), ObservationSpec((1,)), ActionSpec("discrete", n=(2,))),
        hostile_league(),
        hostile_league().ratings,
    )
    return [
        table_html((HOSTILE, "b"), [(HOSTILE, 1)]),
        facts_html(HOSTILE, {HOSTILE: HOSTILE}, HOSTILE),
        folded_html(HOSTILE, HOSTILE),
        picture_html("", "png", HOSTILE),
        styled(table, caption=HOSTILE, whole=["frames"]).to_html(),
        style.table_html([HOSTILE], [[HOSTILE]]),
        style.HTML(HOSTILE).value,
        *(function(HOSTILE) for function in (style.problem_html, style.note_html, style.code_html, style.log_html)),
        *(item._repr_html_() for item in shown),
    ]


def hostile_league() -> LeagueSummary:
    """A league whose run, players, roles and kinds of matches have hostile names."""
    players = {"a": HOSTILE, "b": "b"}
    matches = [Match(k, HOSTILE, HOSTILE, players, (1.0, -1.0), (1.0, 0.0), 5) for k in range(3)]
    events = [PlayerEvent("added", name, role=HOSTILE, side=HOSTILE) for name in players.values()]
    payoff = PayoffTable.from_matches(matches, tuple(players.values()), 1.0)
    return summarise(HOSTILE, events, matches, payoff, {HOSTILE: 10})


def all_pages(folder: Path) -> list[str]:
    """Every kind of HTML that marlnb makes, of hostile names; a test holds that no function of it is left out."""
    return [*built_pages(), *other_pages(HOSTILE, LABEL, folder, hostile_league()), *recorded_pages(folder)]


def player_page() -> str:
    """The page of an episode, which has a script of marlnb's."""
    return made_animation(HOSTILE).html()


def recorded_pages(folder: Path) -> list[str]:
    """What a run in a folder with a hostile name, and its recording with a hostile label, look like."""
    run = make_run(folder / LABEL / "run", LivesConfig(), centralised=False)
    options = {"episodes": 8, "n_envs": 4, "labels": {LABEL: lambda step: step.t % 2}}
    plan = plan_recording(run, **options)
    with record(run, progress=False, **options) as recording:
        site = "a/actor/hidden_1"
        tuning = mnb.tuning(recording, site=site, label=LABEL, agent="a_0", n_shuffles=20, n_bootstrap=20)
        shown = (run, plan, recording, tuning, recording.experiment, *map(recording._array, row_paths(recording.file)))
        return [_curve_html(tuning, 0), *(item._repr_html_() for item in shown), *panel_pages(run, recording)]
