"""Makes quickstart.png, the README's picture, from the figures of an executed quickstart.

make demo && .venv/bin/python docs/images/quickstart.py runs/quickstart/notebook.ipynb
"""

from __future__ import annotations

import base64
import io
import sys
from pathlib import Path

import nbformat
from PIL import Image

CHOSEN = ("learning_curve", "activation_map", "decoding_bars", "attribution_over_time")  # plots, two a line
WIDTH = 1600


def main(notebook: str) -> None:
    figures = [_figure(notebook, plot) for plot in CHOSEN]
    half = WIDTH // 2
    scaled = [figure.resize((half, round(figure.height * half / figure.width))) for figure in figures]
    lines = [scaled[start : start + 2] for start in range(0, len(scaled), 2)]
    heights = [max(figure.height for figure in line) for line in lines]
    sheet = Image.new("RGB", (WIDTH, sum(heights)), "white")
    for row, line in enumerate(lines):
        for column, figure in enumerate(line):
            sheet.paste(figure, (column * half, sum(heights[:row])))
    sheet.quantize(256, dither=Image.Dither.NONE).save(Path(__file__).with_name("quickstart.png"), optimize=True)


def _figure(notebook: str, plot: str) -> Image.Image:
    """The picture that the cell calling `plots.<plot>` shows."""
    for cell in nbformat.read(notebook, as_version=4).cells:
        if f"plots.{plot}(" in cell.source:
            for output in cell.outputs:
                if "image/png" in output.get("data", {}):
                    return Image.open(io.BytesIO(base64.b64decode(output.data["image/png"]))).convert("RGB")
    raise SystemExit(f"{notebook}: no picture by plots.{plot}; was it executed?")


if __name__ == "__main__":
    main(sys.argv[1])
