"""Pictures of games on a plane: discs on a white square."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SIZE_PIXELS = 400
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito: told apart by all readers
GONE = "#dddddd"
_BORDER = "#888888"


def draw_discs(
    positions: np.ndarray,
    colours: Sequence[str],
    *,
    radius: float | Sequence[float] = 0.02,
    size_pixels: int = SIZE_PIXELS,
) -> np.ndarray:
    """Discs on a square, as an image `[height, width, 3]` uint8; later ones are drawn over earlier ones.

    Args:
        positions: `[disc, axis]`, x to the right and y upwards, in `[0, 1]`.
        colours: of each disc, as "#rrggbb".
        radius: of all discs or of each, in units of the square's side.
        size_pixels: height and width.
    """
    image = np.full((size_pixels, size_pixels, 3), 255, np.uint8)
    image[[0, -1]] = image[:, [0, -1]] = _rgb(_BORDER)
    radii = np.broadcast_to(np.asarray(radius, float), (len(positions),))
    for (x, y), colour, r in zip(np.asarray(positions, float), colours, radii, strict=True):
        column, row, reach = x * (size_pixels - 1), (1 - y) * (size_pixels - 1), max(r * size_pixels, 1.0)
        top, bottom = _span(row, reach, size_pixels)
        left, right = _span(column, reach, size_pixels)
        rows, columns = np.ogrid[top:bottom, left:right]
        image[top:bottom, left:right][(rows - row) ** 2 + (columns - column) ** 2 <= reach**2] = _rgb(colour)
    return image


def _span(center: float, reach: float, size: int) -> tuple[int, int]:
    return max(int(center - reach), 0), min(int(center + reach) + 2, size)


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
