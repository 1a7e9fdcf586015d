"""The league's tab in a browser, light and dark: a league trains, a player is frozen, a snapshot is opened."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from marlnb.training.runs.run import Run
from tests.browser.lab import SLOW_MS, Lab, button, until
from tests.browser.test_themes import CLIPPED, FAINT, THEMES

PANEL = """
import marlnb as mnb
experiment = mnb.Experiment.compose(
    "env=pettingzoo/tictactoe", "league=alphastar", "league.league_exploiter.count=1", "algorithm=ippo", "n_envs=8",
    "rollout_steps=32", "frames={frames}", "threads=1", "league.main.snapshot_frames=1024",
    "league.main_exploiter.snapshot_frames=2048", "league.league_exploiter.snapshot_frames=2048")
training = mnb.start(experiment, "{run}")
panel = mnb.attach(training.run)
panel
"""

CELL = """
import marlnb as mnb
from marlnb.widgets import TrainingPanel
panel = TrainingPanel(mnb.Experiment.compose(
    "env=pettingzoo/tictactoe", "algorithm=ippo", "n_envs=8", "rollout_steps=32", "frames=2_048", "threads=1"))
panel
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_league_is_watched_and_opened(lab: Lab, page: Page, keep: Callable[..., None], theme: str) -> None:
    lab.choose(THEMES, {"theme": "JupyterLab Dark"} if theme == "dark" else None)
    path, page_errors = f"runs/league-{theme}", []
    page.on("pageerror", lambda error: page_errors.append(str(error)))
    page.set_viewport_size({"width": 1300, "height": 1500})
    notebook = lab.open(page, lab.write(f"league-{theme}.ipynb", PANEL.format(run=path, frames=2_000_000)))
    lab.choose(THEMES, None)
    shown = notebook.run(0).locator(".marlnb-run")
    expect(shown).to_contain_text("frames a second", timeout=SLOW_MS)
    shown.get_by_role("tab", name="League").click()
    panel = shown.locator(".marlnb-league")
    league = Run.open(lab.folder / path).league
    until(lambda: len(league.history.known) > 12, deadline_s=120)
    expect(panel).to_contain_text("self play", timeout=SLOW_MS)
    expect(panel.get_by_role("radio").nth(8)).to_be_visible(timeout=SLOW_MS)

    panel.get_by_label("player", exact=True).select_option("league_exploiter_0")
    button(panel, "Freeze").click()
    page.wait_for_timeout(1500)
    keep(panel, "freezing")
    until(lambda: any(event.event == "frozen" for event in league.events()), deadline_s=120)
    expect(panel).to_contain_text("league_exploiter_0 is frozen", timeout=SLOW_MS)
    button(shown, "Stop").click()
    expect(shown).to_contain_text("stopped: resume from the last checkpoint", timeout=SLOW_MS)

    snapshot = panel.get_by_role("radio", name="main_exploiter_0@0:")
    snapshot.click()
    page.keyboard.press("ArrowRight")
    expect(panel.get_by_role("radio", name="main_exploiter_0@1:")).to_be_checked()
    page.keyboard.press("ArrowLeft")
    panel.get_by_label("against").select_option("main_0")
    button(panel, "Play and open").click()
    expect(panel).to_contain_text("win rate of main_exploiter_0@0", timeout=SLOW_MS)
    expect(panel.locator(".marlnb-microscope canvas").first).to_be_visible(timeout=SLOW_MS)
    page.wait_for_timeout(1500)
    keep(panel, "league")
    assert panel.evaluate(FAINT) == {} and panel.evaluate(CLIPPED) == []
    assert page_errors == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_league_is_chosen_in_the_training_cell(lab: Lab, page: Page, keep: Callable[..., None], theme: str) -> None:
    lab.choose(THEMES, {"theme": "JupyterLab Dark"} if theme == "dark" else None)
    page.set_viewport_size({"width": 1300, "height": 1500})
    notebook = lab.open(page, lab.write(f"cell-{theme}.ipynb", CELL))
    lab.choose(THEMES, None)
    panel = notebook.run(0).locator(".marlnb-training")
    panel.get_by_role("tab", name="Population").click(timeout=SLOW_MS)
    panel.get_by_label("a league: players learn").check()
    expect(panel).to_contain_text("main exploiters", timeout=SLOW_MS)
    keep(panel, "population")
    assert panel.evaluate(FAINT) == {} and panel.evaluate(CLIPPED) == []
    panel.get_by_role("tab", name="As code").click()
    expect(panel).to_contain_text("league=alphastar", timeout=SLOW_MS)
    panel.get_by_placeholder("runs/<env>").fill(f"runs/cell-{theme}")
    panel.locator("button.marlnb-train").click()
    shown = panel.locator(".marlnb-run")
    expect(shown).to_contain_text("complete", timeout=SLOW_MS)
    shown.get_by_role("tab", name="League").click()
    expect(shown.locator(".marlnb-league")).to_contain_text("matches by kind", timeout=SLOW_MS)
    keep(panel, "trained")
    assert len(Run.open(lab.folder / f"runs/cell-{theme}").league.players) == 4
