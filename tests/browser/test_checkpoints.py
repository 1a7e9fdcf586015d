"""Checkpoints and recordings in a browser: evaluate, annotate, compare, delete; choose sites and record."""

from __future__ import annotations

import os
import re
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from marlnb.recording.file.reader import Recording
from marlnb.training.policies.evaluation import evaluate
from marlnb.training.runs.checkpoints.notes import CheckpointNotes
from marlnb.training.runs.run import Run
from tests.browser.lab import SLOW_MS, Lab

TRAIN = """
import marlnb as mnb
experiment = mnb.Experiment.compose(
    "env=mpe/simple_speaker_listener", "algorithm=mappo", "n_envs=8", "rollout_steps=25", "frames=10_000", "threads=1",
    "checkpoint_every=10", "keep_checkpoints=0")
run = mnb.train(experiment, "runs/kept")
from marlnb.widgets import attach
panel = attach(run)
panel
"""
OPEN = "from marlnb.widgets import attach\nattach('runs/kept')"


def _screenshot(page: Page, name: str) -> None:
    folder = os.environ.get("MARLNB_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


def _row(panel: Locator, iteration: int) -> Locator:
    return panel.locator(f".marlnb-choice tr[data-name='{iteration}']")


def _button(panel: Locator, name: str) -> Locator:
    return panel.locator("button", has_text=re.compile(rf"^\s*{name}\s*$"))


def _tab(panel: Locator, name: str) -> None:
    panel.get_by_role("tab", name=name, exact=True).click()


def test_checkpoints_are_evaluated_noted_compared_and_deleted(lab: Lab, page: Page) -> None:
    page.set_viewport_size({"width": 1300, "height": 1700})
    notebook = lab.open(page, lab.write("kept.ipynb", TRAIN, OPEN))
    panel = notebook.run(0).locator(".marlnb-run")
    expect(panel).to_contain_text("complete", timeout=SLOW_MS)
    run = Run.open(lab.folder / "runs" / "kept")
    _tab(panel, "Checkpoints")
    expect(panel.locator(".marlnb-choice tbody tr")).to_have_count(len(run.checkpoints), timeout=SLOW_MS)
    _row(panel, 10).click()
    expect(panel.locator(".marlnb-plot").first).to_have_attribute("aria-label", re.compile("5 marked, 10 at 2,000"))
    _row(panel, 10).locator("input").press("ArrowDown")  # by keyboard to the next one, and back
    expect(panel).to_contain_text("Checkpoint 20")
    page.keyboard.press("ArrowUp")
    expect(panel).to_contain_text("Checkpoint 10")

    field = panel.locator(".marlnb-field-episodes input").first
    field.fill("many")
    expect(panel.locator(".marlnb-field-episodes [role=alert]").first).to_contain_text("whole number", timeout=SLOW_MS)
    field.fill("40")
    _button(panel, "Evaluate").click()
    expect(panel).to_contain_text("checkpoint 10: 40 episodes in", timeout=SLOW_MS)
    (kept,) = CheckpointNotes(run).evaluations(10)
    assert kept["return_mean"] == evaluate(run, checkpoint=10, episodes=40).return_mean
    expect(_row(panel, 10)).to_contain_text(f"{kept['score']:.3f} ±")
    panel.get_by_label("compare with").select_option("50")
    _button(panel, "Evaluate both").click()
    expect(panel).to_contain_text("50 minus 10, episode by episode", timeout=SLOW_MS)
    panel.get_by_label("note", exact=True).fill("wanders about")
    _button(panel, "Save note").click()
    expect(_row(panel, 10)).to_contain_text("wanders about", timeout=SLOW_MS)
    panel.get_by_text("as code", exact=True).click()
    expect(panel).to_contain_text("notes.write(10, 'wanders about')")
    _screenshot(page, "checkpoints-1-compared")

    page.reload()
    notebook.connected()
    again = notebook.run(1).locator(".marlnb-run")
    _tab(again, "Checkpoints")
    expect(_row(again, 10)).to_contain_text("wanders about", timeout=SLOW_MS)
    _row(again, 20).click()
    _button(again, "Delete").click()
    expect(again.locator(".marlnb-question")).to_contain_text("Delete checkpoint 20 permanently?", timeout=SLOW_MS)
    _screenshot(page, "checkpoints-2-question")
    _button(again, "Cancel").click()
    assert 20 in [one.iteration for one in run.checkpoints]
    _button(again, "Delete").click()
    _button(again, "Delete permanently").click()
    expect(_row(again, 20)).to_have_count(0, timeout=SLOW_MS)
    assert 20 not in [one.iteration for one in run.checkpoints]


def test_sites_are_chosen_recorded_and_opened(lab: Lab, page: Page) -> None:
    page.set_viewport_size({"width": 1300, "height": 1700})
    notebook = lab.open(page, lab.write("sites.ipynb", TRAIN.replace("runs/kept", "runs/sites")))
    panel = notebook.run(0).locator(".marlnb-run")
    expect(panel).to_contain_text("complete", timeout=SLOW_MS)
    _tab(panel, "Recordings")
    form = panel.locator(".marlnb-recording")
    branch = form.get_by_role("treeitem", name="speaker/actor:")
    expect(branch).to_have_attribute("aria-checked", "true", timeout=SLOW_MS)
    expect(form).to_contain_text("200 episodes, at most 5,000 rows", timeout=SLOW_MS)
    branch.locator(".row").first.click()
    expect(branch).to_have_attribute("aria-checked", "false")
    page.keyboard.press("ArrowDown")  # the first layer below, by keyboard
    page.keyboard.press("Space")
    expect(branch).to_have_attribute("aria-checked", "mixed")
    expect(form.get_by_role("treeitem", name="speaker: 1 of", exact=False).first).to_be_visible()
    episodes = form.locator(".marlnb-field-episodes input")
    episodes.fill("20000")
    expect(form).to_contain_text("20,000 episodes, at most 500,000 rows", timeout=SLOW_MS)
    _screenshot(page, "recordings-1-planned")
    _button(form, "Record").click()
    rows = [_rows(form, above=0)]
    rows.append(_rows(form, above=rows[0]))
    _screenshot(page, "recordings-2-recording")
    _button(form, "Stop").click()
    expect(form).to_contain_text("marked incomplete", timeout=SLOW_MS)
    with Recording.open(lab.folder / "runs" / "sites" / "recordings" / "recording.h5") as stopped:
        assert not stopped.complete and len(stopped) >= rows[1] > rows[0]

    episodes.fill("30")
    expect(form).to_contain_text("30 episodes, at most 750 rows", timeout=SLOW_MS)
    _button(form, "Record").click()
    expect(form).to_contain_text("30 episodes, 750 rows, complete", timeout=SLOW_MS)
    _screenshot(page, "recordings-3-recorded")
    with Recording.open(lab.folder / "runs" / "sites" / "recordings" / "recording_2.h5") as made:
        assert made.complete and made.sites == [
            "speaker/actor/hidden_1",
            *("listener/actor/hidden_1", "listener/actor/hidden_2", "listener/actor/head"),
        ]
    _button(form, "Open in the microscope").click()
    expect(form.locator(".marlnb-scope .ms-reading")).to_contain_text("step 0 of 24", timeout=SLOW_MS)
    _screenshot(page, "recordings-4-microscope")


def _rows(form: Locator, *, above: int) -> int:
    """The number of rows on the page, once it is more than `above`."""
    status = form.get_by_role("status").filter(has_text="rows a second")
    for _ in range(600):
        match = re.search(r"([\d,]+) rows,", status.first.text_content(timeout=SLOW_MS) or "")
        if match and int(match[1].replace(",", "")) > above:
            return int(match[1].replace(",", ""))
        form.page.wait_for_timeout(50)
    raise AssertionError("the page reported no more rows")
