"""What a result tells as JSON: numpy's scalars as Python's, and null for what JSON has no number for."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np


def plain_json(value: Any) -> Any:
    """Mappings, lists, tuples, arrays and scalars as `json.dumps(..., allow_nan=False)` takes them: NaN and infinities
    become None, tuples and arrays lists."""
    if isinstance(value, Mapping):
        return {str(key): plain_json(x) for key, x in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain_json(value.tolist())
    if isinstance(value, list | tuple):
        return [plain_json(x) for x in value]
    return None if isinstance(value, float) and not isfinite(value) else value
