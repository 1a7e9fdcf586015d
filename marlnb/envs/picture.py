"""A picture as an environment draws it, checked: images and videos are made of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from marlnb.errors import EnvError


def checked_picture(name: str, source: str, picture: Any) -> np.ndarray:
    """`picture` as `[height, width, channel]` uint8, with 3 channels, or 4 if the last one is opacity.

    Args:
        name: of the environment.
        source: the function that returned it, for the message.

    Raises:
        EnvError: not integers from 0 to 255 of this shape.
    """
    if isinstance(picture, np.ndarray):
        has_shape = picture.ndim == 3 and picture.shape[2] in (3, 4) and picture.size > 0
        if has_shape and (picture.dtype == np.uint8 or _are_bytes(picture)):
            return np.array(picture, np.uint8, order="C")  # a copy: the environment may draw into it again
        got = f"an array of shape {list(picture.shape)} and dtype {picture.dtype}"
        if has_shape:
            got += f", from {picture.min():.6g} to {picture.max():.6g}"
    else:
        got = type(picture).__name__
    raise EnvError(
        f"{name} cannot be rendered: {source} returned {got}; "
        "expected a numpy array [height, width, 3] of integers from 0 to 255 (uint8)"
    )


def _are_bytes(picture: np.ndarray) -> bool:
    return bool(np.issubdtype(picture.dtype, np.integer) and picture.min() >= 0 and picture.max() <= 255)
