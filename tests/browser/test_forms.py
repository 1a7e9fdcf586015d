"""Forms in a browser: fast typing while the kernel is busy, two pages, keyboard, saving and opening."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from playwright.sync_api import Browser, Page, expect

from tests.browser.lab import SLOW_MS, Lab

PANEL = """
import marlnb as mnb
from marlnb.widgets import TrainingPanel
panel = TrainingPanel(mnb.Experiment.compose("env=mpe/simple_tag", "algorithm=ippo", "n_envs=8", "tuned=false"))
panel
"""
SAY = "print(panel.length.values['seed'], panel.length.values['frames'], panel.experiment.algorithm.epochs)"
# what anybody but the writer puts into a control
WATCH = """input => {
  const own = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value");
  window.put = [];
  Object.defineProperty(input, "value", {
    get() { return own.get.call(this); }, set(text) { window.put.push(text); own.set.call(this, text); } });
}"""
BUSY = """
import time
for seed in range(20):
    panel.length.set({"evaluation_episodes": 1 + seed})
    time.sleep(0.1)
"""
ALGORITHM = ".marlnb-algorithm .marlnb-form summary"


def test_who_types_is_not_overtaken_by_a_kernel_that_is_late(lab: Lab, page: Page) -> None:
    notebook = lab.open(page, lab.write("typed.ipynb", PANEL, BUSY, SAY, "panel.length.set({'seed': 5})"))
    panel = notebook.run(0).locator(".marlnb-training")
    expect(panel).to_contain_text("episodes of at most 25 steps", timeout=SLOW_MS)
    panel.get_by_role("tab", name="Length", exact=True).click()
    seed = panel.get_by_label("seed", exact=True)
    seed.evaluate(WATCH)
    notebook.run(1)
    seed.fill("")
    seed.press_sequentially("1234567890", delay=60)
    expect(seed).to_have_value("1234567890")
    expect(panel.get_by_label("evaluation_episodes", exact=True)).to_have_value("20", timeout=SLOW_MS)  # set meanwhile
    expect(seed).to_have_value("1234567890")
    assert page.evaluate("window.put") == []
    expect(notebook.run(2)).to_contain_text("1234567890 ", timeout=SLOW_MS)
    notebook.run(3)
    expect(seed).to_have_value("5", timeout=SLOW_MS)


def test_two_pages_fill_in_one_form(lab: Lab, page: Page, browser: Browser) -> None:
    name = lab.write("shared.ipynb", PANEL, SAY)
    notebook = lab.open(page, name)
    panel = notebook.run(0).locator(".marlnb-training")
    expect(panel).to_contain_text("episodes of at most 25 steps", timeout=SLOW_MS)
    notebook.save()
    with browser.new_page(viewport={"width": 1300, "height": 950}) as other:
        second = lab.open(other, name)  # the same kernel: nothing is run
        there = second.output(0).locator(".marlnb-training")
        there.get_by_role("tab", name="Length", exact=True).click(timeout=SLOW_MS)
        seed, frames = panel.get_by_label("seed", exact=True), there.get_by_label("frames", exact=True)
        expect(seed).to_be_visible(timeout=SLOW_MS)
        frames.fill("")
        seed.fill("")
        for mine, theirs in zip("98765", "4321_"):
            seed.press(mine)
            frames.press(theirs)
        frames.press("0")
        for shown in (panel, there):
            expect(shown.get_by_label("seed", exact=True)).to_have_value("98765", timeout=SLOW_MS)
            expect(shown.get_by_label("frames", exact=True)).to_have_value("4321_0", timeout=SLOW_MS)
        panel.get_by_role("tab", name="Algorithm", exact=True).click()
        panel.locator(ALGORITHM).first.click()
        epochs = there.get_by_label("epochs", exact=True)
        expect(epochs).to_be_visible(timeout=SLOW_MS)  # unfolded there too
        epochs.fill("0")
        for shown in (panel, there):
            wrong = shown.get_by_label("epochs", exact=True)
            expect(wrong).to_have_attribute("aria-invalid", "true", timeout=SLOW_MS)
            expect(wrong).to_have_accessible_description(re.compile("^epochs must be at least 1; got 0 .*passes"))
            expect(shown.locator(ALGORITHM).first).to_have_text("options of ippo (1 changed, 1 invalid)")
        epochs.fill("3")
        expect(panel.get_by_label("epochs", exact=True)).to_have_value("3", timeout=SLOW_MS)
        expect(panel.locator(".marlnb-field [role=alert]")).to_have_count(0)
    expect(notebook.run(1)).to_contain_text("98765 43210 3", timeout=SLOW_MS)


def test_a_form_works_by_keyboard_and_does_not_move_the_notebook(
    lab: Lab, page: Page, keep: Callable[..., None]
) -> None:
    notebook = lab.open(page, lab.write("by-keys.ipynb", PANEL, SAY))
    panel = notebook.run(0).locator(".marlnb-training")
    expect(panel).to_contain_text("episodes of at most 25 steps", timeout=SLOW_MS)
    named = panel.evaluate("panel => [...panel.querySelectorAll('.marlnb-form [id]')].map(one => one.id)")
    assert len(set(named)) == len(named) > 30  # forms that are drawn in the same millisecond, too
    panel.get_by_role("tab", name="Algorithm", exact=True).click()
    folded = panel.locator(ALGORITHM).first
    folded.focus()
    page.keyboard.press("Enter")
    rate = panel.get_by_label("lr", exact=True)
    expect(rate).to_be_visible()
    page.keyboard.press("Tab")
    expect(rate).to_be_focused()
    loss, normalised = panel.get_by_label("value_loss"), panel.get_by_label("normalise_advantages")
    loss.focus()
    page.keyboard.press("ArrowDown")
    expect(loss).to_have_value("huber")
    normalised.focus()
    was = normalised.is_checked()
    page.keyboard.press("Space")
    expect(normalised).to_be_checked(checked=not was)
    expect(folded).to_have_text("options of ippo (2 changed)", timeout=SLOW_MS)
    for key in ("a", "b", "d", "d"):  # in a notebook these insert and delete cells
        page.keyboard.press(key)
    assert page.locator(".jp-Notebook .jp-Cell").count() == 2
    keep(panel, "unfolded")
    folded.focus()
    page.keyboard.press("Space")
    expect(rate).to_be_hidden()
    panel.get_by_role("tab", name="As code").click()
    expect(panel).to_contain_text("algorithm.value_loss=huber", timeout=SLOW_MS)


def test_a_saved_form_shows_what_was_filled_in(lab: Lab, page: Page) -> None:
    lab.choose("@jupyter-widgets/jupyterlab-manager:plugin", {"saveState": True})
    notebook = lab.open(page, lab.write("kept-form.ipynb", PANEL))
    panel = notebook.run(0).locator(".marlnb-training")
    expect(panel).to_contain_text("episodes of at most 25 steps", timeout=SLOW_MS)
    panel.get_by_role("tab", name="Length", exact=True).click()
    panel.get_by_label("seed", exact=True).fill("77")
    panel.get_by_label("frames", exact=True).fill("few")
    expect(panel.get_by_role("alert").first).to_contain_text("whole number", timeout=SLOW_MS)
    notebook.save()
    lab.choose("@jupyter-widgets/jupyterlab-manager:plugin", None)
    saved = json.loads((lab.folder / "kept-form.ipynb").read_text())["metadata"]["widgets"]
    models = saved["application/vnd.jupyter.widget-state+json"]["state"].values()
    (length,) = [model["state"] for model in models if "option_seed" in model["state"]]
    assert (length["option_seed"], length["option_frames"]) == ("77", "few") and list(length["problems"]) == ["frames"]
    notebook.shut_down()
    page.reload()
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=SLOW_MS)
    expect(panel.get_by_label("seed", exact=True)).to_have_value("77", timeout=SLOW_MS)
    expect(panel.get_by_label("frames", exact=True)).to_have_value("few")
