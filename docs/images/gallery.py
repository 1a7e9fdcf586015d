"""Makes gallery.png: `make browser-setup`, then `python -m docs.images.gallery`.

Chromium shows the table of the gallery as a notebook does, in JupyterLab's light and dark colours.
"""

from __future__ import annotations

from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import marlnb as mnb
from tests.browser.lab import ARGUMENTS, CHROMIUM

WIDTH = 1250
LIGHT = "background:#ffffff;color:#212121;--jp-ui-font-color2:rgba(0,0,0,0.54);--row:#f5f5f5"
DARK = "background:#111111;color:#ffffff;--jp-ui-font-color2:rgba(255,255,255,0.7);--row:#212121"
STYLE = """
body { margin: 0; font: 13px/1.5 system-ui, "DejaVu Sans", sans-serif }
div { padding: 10px 16px }
table { border-collapse: collapse; font-size: 12px }
th, td { padding: 4px 8px; vertical-align: top }
thead { border-bottom: 1px solid gray }
tbody tr:nth-child(odd) { background: var(--row) }
p { margin: 6px 0 0 }
"""


def main() -> None:
    table = mnb.gallery()._repr_html_()
    path = Path(__file__).with_name("gallery.png")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        page = browser.new_page(viewport={"width": WIDTH, "height": 200})
        parts = "".join(f"<div style='{colours}'>{table}</div>" for colours in (LIGHT, DARK))
        page.set_content(f"<!doctype html><style>{STYLE}</style>{parts}")
        page.screenshot(path=str(path), full_page=True)
        browser.close()
    Image.open(path).convert("P", palette=Image.Palette.ADAPTIVE, colors=64).save(path, optimize=True)


if __name__ == "__main__":
    main()
