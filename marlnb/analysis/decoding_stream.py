"""Decoding a site that is larger than memory: the file is read in batches, and only sums are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from marlnb.analysis.decoding_question import Plan
from marlnb.analysis.decoding_result import DecodingScore
from marlnb.analysis.readings import Reading
from marlnb.analysis.rows import Rows, RowSource
from marlnb.errors import AnalysisError


def answer_stream(
    source: RowSource,
    rows: Rows,
    site: str,
    agent: str,
    offset: int,
    keep: np.ndarray,
    y: np.ndarray,
    fold: np.ndarray,
    plan: Plan,
    *,
    progress: bool,
) -> tuple[DecodingScore, Reading, np.ndarray]:
    raise AnalysisError(f"{site} needs more memory than memory_bytes allows; raise it, or choose episodes=")
