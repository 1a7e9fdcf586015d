"""The population's tab in a browser, light and dark: a population trains, a schedule is chosen, a member is opened."""

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
    "env=mpe/simple_spread", "algorithm=ippo", "model.hidden=[16]", "n_envs=8", "rollout_steps=25", "threads=1",
    "evolution=tournament", "evolution.population=4", "evolution.generation_frames=400",
    "evolution.probability.none=0", "evolution.probability.width=0.5", "evaluation_episodes=4", "frames={frames}")
training = mnb.start(experiment, "{run}")
panel = mnb.attach(training.run)
panel
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_population_is_watched_and_opened(lab: Lab, page: Page, keep: Callable[..., None], theme: str) -> None:
    lab.choose(THEMES, {"theme": "JupyterLab Dark"} if theme == "dark" else None)
    path, page_errors = f"runs/population-{theme}", []
    page.on("pageerror", lambda error: page_errors.append(str(error)))
    page.set_viewport_size({"width": 1300, "height": 1500})
    notebook = lab.open(page, lab.write(f"population-{theme}.ipynb", PANEL.format(run=path, frames=2_000_000)))
    lab.choose(THEMES, None)
    shown = notebook.run(0).locator(".marlnb-run")
    expect(shown).to_contain_text("frames a second", timeout=SLOW_MS)
    shown.get_by_role("tab", name="Population").click()
    panel = shown.locator(".marlnb-population")
    population = Run.open(lab.folder / path).population
    until(lambda: max((row.generation for row in population.lineage()), default=0) >= 4, deadline_s=120)
    button(shown, "Stop").click()
    expect(shown).to_contain_text("stopped: resume from the last checkpoint", timeout=SLOW_MS)
    expect(panel).to_contain_text(f"the fittest is {population.best.id} with", timeout=SLOW_MS)
    expect(panel.get_by_role("img", name="who descends from whom")).to_be_visible()

    panel.get_by_label("option").select_option("algorithm.clip")
    expect(panel.get_by_role("img", name="how algorithm.clip moved")).to_be_visible(timeout=SLOW_MS)
    panel.get_by_label("member", exact=True).select_option(population.best.id)
    button(panel, "Play and open").click()
    expect(panel).to_contain_text(f"below: {population.best.id}, recorded in", timeout=SLOW_MS)
    expect(panel.locator(".marlnb-microscope canvas").first).to_be_visible(timeout=SLOW_MS)
    page.wait_for_timeout(1500)
    keep(panel, "population")
    assert panel.evaluate(FAINT) == {} and panel.evaluate(CLIPPED) == []
    assert page_errors == []
