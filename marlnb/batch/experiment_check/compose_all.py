"""Compose experiments from overrides and judge them, as far as that is possible without their environments."""

from __future__ import annotations

import time
from collections.abc import Sequence

from marlnb.batch.experiment_check.verdict import Verdict
from marlnb.errors import MarlnbError
from marlnb.experiment import Experiment


def compose_all(overrides: Sequence[Sequence[str]], *, time_limit_s: float) -> list[Verdict | None]:
    """One verdict for each list of overrides; None for those that were not reached within the time limit.

    Args:
        overrides: lists of overrides.
        time_limit_s: of processor time, without that of the first, which loads the options of all parts.
    """
    verdicts: list[Verdict | None] = []
    start = time.process_time()
    for words in overrides:
        is_late = time.process_time() - start > time_limit_s
        verdicts.append(None if is_late else judge(words))
        if len(verdicts) == 1:
            start = time.process_time()
    return verdicts


def judge(overrides: Sequence[str]) -> Verdict:
    """Composes one experiment, and checks what does not depend on its environment."""
    try:
        experiment = Experiment.compose(*overrides)
        experiment.check_without_env()
    except MarlnbError as error:
        has_import_path = any(":" in word.partition("=")[2] for word in overrides)
        is_doubtful = has_import_path or any(text in str(error) for text in ("import", "could not be loaded"))
        return Verdict(str(error), doubtful=is_doubtful)
    except Exception as error:  # a module of the user may raise anything
        return Verdict(f"{type(error).__name__}: {error}", doubtful=True)
    return Verdict(unused=tuple(experiment.unused_overrides(overrides)))
