"""Accessibility of the panels: dark and light, in a narrow window, in Notebook 7, by keyboard, with a screen reader."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.lab import SLOW_MS, Lab, Notebook, button, points, until

THEMES = "@jupyterlab/apputils-extension:themes"
PANEL = """
import marlnb as mnb
from marlnb.widgets import TrainingPanel
experiment = mnb.Experiment.compose(
    "env=mpe/simple_tag", "algorithm=mappo", "n_envs=8", "rollout_steps=25", "frames={frames}", "threads=1")
panel = TrainingPanel(experiment, "{run}", references={{"random": -20.0}})
training = panel.start()
panel
"""
PAGES = ("Algorithm", "Device", "Length", "Population", "Saving", "As code", "As a command", "Environment")
# texts whose contrast with what lies behind them is below WCAG's 4.5; what is switched off may be faint
FAINT = """panel => {
  const rgba = text => { const n = text.match(/[\\d.]+/g).map(Number); return [n[0], n[1], n[2], n[3] ?? 1]; };
  const over = (a, b) => [0, 1, 2].map(k => a[k] * a[3] + b[k] * (1 - a[3])).concat(1);
  const behind = element => {
    let found = [0, 0, 0, 0];
    for (let e = element; e; e = e.parentElement) {
      const own = rgba(getComputedStyle(e).backgroundColor);
      if (found[3] < 1 && own[3] > 0) found = found[3] ? over(found, own) : own;
      if (found[3] === 1) return found;
    }
    return over(found, [255, 255, 255, 1]);
  };
  const light = c => { const [r, g, b] = c.slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const seen = new Map();
  const walker = document.createTreeWalker(panel, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
    if (!text || !e.checkVisibility({ checkVisibilityCSS: true }) || e.closest("style, :disabled")) continue;
    const back = behind(e), front = rgba(getComputedStyle(e).color);
    let opacity = 1;
    for (let p = e; p; p = p.parentElement) opacity *= Number(getComputedStyle(p).opacity);
    front[3] *= opacity;
    const [a, b] = [light(over(front, back)), light(back)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) seen.set(text.slice(0, 40), Number(ratio.toFixed(2)));
  }
  return Object.fromEntries(seen);
}"""
# what reaches beyond a box around it, and words cut off; code, logs and tables may be scrolled
CLIPPED = """panel => {
  const wide = "button, label, input, select, .marlnb-note, .marlnb-help, .lm-TabBar-tabLabel, img, canvas";
  const beyond = e => {
    for (let box = e.parentElement; ; box = box.parentElement) {
      const closed = box === panel || getComputedStyle(box).overflowX !== "visible";
      if (closed && e.getBoundingClientRect().right > box.getBoundingClientRect().right + 1) return true;
      if (box === panel) return false;
    }
  };
  return [...panel.querySelectorAll(wide)]
    .filter(e => e.checkVisibility() && !e.closest("pre, .marlnb-table"))
    .filter(e => beyond(e) || (e.matches("button, label, .lm-TabBar-tabLabel") && e.scrollWidth > e.clientWidth + 2))
    .map(e => `${e.tagName} ${e.className}: ${(e.textContent || e.placeholder || "").trim().slice(0, 40)}`);
}"""
CONTROLS = "button|textbox|combobox|checkbox|listbox|tab|img|spinbutton|radio|progressbar"
NAMELESS = re.compile(rf'^\s*- (?:{CONTROLS})\b(?! ").*$', re.M)


@pytest.fixture
def dark(lab: Lab) -> Iterator[None]:
    lab.choose(THEMES, {"theme": "JupyterLab Dark"})
    yield
    lab.choose(THEMES, None)


def _trained(notebook: Notebook) -> Locator:
    panel = notebook.run(0).locator(".marlnb-training")
    expect(panel.locator(".marlnb-run")).to_contain_text("complete", timeout=SLOW_MS)
    expect(panel).to_contain_text("episodes of at most 25 steps", timeout=SLOW_MS)
    return panel


def _look_at_every_page(panel: Locator, keep: Callable[..., None], script: str) -> dict[str, object]:
    complaints = {}
    for name in PAGES:
        panel.get_by_role("tab", name=name, exact=True).click()
        panel.page.wait_for_timeout(300)
        keep(panel, name)
        if complaint := panel.evaluate(script):
            complaints[name] = complaint
    return complaints


def test_a_dark_theme_is_readable(lab: Lab, page: Page, dark: None, keep: Callable[..., None]) -> None:
    notebook = lab.open(page, lab.write("dark.ipynb", PANEL.format(run="runs/dark", frames=2000)))
    panel = _trained(notebook)
    assert page.evaluate("document.body.dataset.jpThemeLight") == "false"
    assert _look_at_every_page(panel, keep, FAINT) == {}


def test_a_narrow_notebook_7_is_readable_and_every_control_has_a_name(
    lab: Lab, page: Page, keep: Callable[..., None]
) -> None:
    page.set_viewport_size({"width": 480, "height": 900})
    name = lab.write("narrow.ipynb", PANEL.format(run="runs/narrow", frames=2000))
    panel = _trained(lab.open(page, name, "notebooks"))
    assert _look_at_every_page(panel, keep, CLIPPED) == {}
    assert _look_at_every_page(panel, keep, FAINT) == {}
    for tab in PAGES:
        panel.get_by_role("tab", name=tab, exact=True).click()
        assert NAMELESS.findall(panel.aria_snapshot()) == []


def test_the_keyboard_is_enough(lab: Lab, page: Page) -> None:
    notebook = lab.open(page, lab.write("keys.ipynb", PANEL.format(run="runs/keys", frames=200_000_000)))
    panel = notebook.run(0).locator(".marlnb-run")
    expect(panel).to_contain_text("frames a second", timeout=SLOW_MS)
    until(lambda: points(panel) > 10)
    panel.page.locator("button.marlnb-train").focus()
    _press_until(page, "Tab", "Pause")
    page.keyboard.press("Space")
    expect(panel).to_contain_text("paused", timeout=SLOW_MS)
    _press_until(page, "Tab", "returns")
    reading = panel.locator(".marlnb-curves [role=status]").first
    page.keyboard.press("ArrowLeft")
    expect(reading).to_contain_text("environment steps")
    first = reading.inner_text()
    page.keyboard.press("ArrowLeft")
    expect(reading).not_to_have_text(first)
    page.keyboard.press("Escape")
    expect(reading).not_to_contain_text("environment steps")
    _press_until(page, "Shift+Tab", "Stop")
    page.keyboard.press("Enter")
    expect(panel).to_contain_text("stopped: resume", timeout=SLOW_MS)
    expect(button(panel, "Resume")).to_be_enabled()


def _press_until(page: Page, key: str, name: str) -> None:
    """Moves the focus until a control of this name has it."""
    focused = "(e => `${e.textContent} ${e.getAttribute('aria-label')}`)(document.activeElement)"
    for _ in range(12):
        page.keyboard.press(key)
        if name in page.evaluate(focused):
            return
    raise AssertionError(f"{key} does not lead to {name}; it led to {page.evaluate(focused)}")
