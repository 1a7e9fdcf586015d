"""The numbers that the microscope writes next to curves and bars."""

from __future__ import annotations

from playwright.sync_api import Page

from marlnb.widgets.microscope.scope import PAGE

TEXTS = {
    "1234.56": "1235",
    "-12.34": "-12.3",
    "1.5": "1.50",
    "0.0999": "0.1",
    "Math.fround(0.004)": "0.004",
    "Math.fround(-0.00123)": "-0.0012",
    "0.000123": "1.2e-4",
    "-1e-7": "-1e-7",
    "0": "0.00",
    "-0": "0.00",
    "NaN": "–",
}


def test_small_numbers_keep_two_digits(page: Page) -> None:
    colours = (PAGE / "colours.js").read_text(encoding="utf-8")
    texts = page.evaluate(f"(() => {{ {colours}\nreturn [{', '.join(TEXTS)}].map(brief); }})()")
    assert dict(zip(TEXTS, texts, strict=True)) == TEXTS
