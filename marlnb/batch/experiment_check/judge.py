"""Judge: composes experiments from their overrides, each once, and says what is wrong with them."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass

from marlnb.errors import MarlnbError
from marlnb.experiment import Experiment

_SEED = re.compile(r"seed=\d{1,9}")

Request = tuple[tuple[str, ...], str | None]
"""Overrides, and the folder of variants."""


@dataclass(frozen=True)
class Verdict:
    """What is wrong with one list of overrides.

    Attributes:
        error: why no Experiment accepts them; None if one does.
        training_error: why the experiment cannot be trained as it is composed.
        unused: overrides that have no effect, with the reason.
        doubtful: whether the error may come from the check itself, as for a module that the notebook writes.
        composed: whether all parts are known, so that an error does not depend on what the notebook defines.
    """

    error: Exception | None = None
    training_error: Exception | None = None
    unused: tuple[str, ...] = ()
    doubtful: bool = False
    composed: bool = True


class Judge:
    """Composes experiments, and checks what does not depend on their environments.

    Attributes:
        late: the overrides that were not judged, to save time.
    """

    def __init__(self, time_limit_s: float) -> None:
        """`time_limit_s` is processor time, without that of the first experiment, which loads the options."""
        self.late: set[Request] = set()
        self._verdicts: dict[Request, Verdict] = {}
        self._left_s = time_limit_s

    @property
    def n_experiments(self) -> int:
        return len(self._verdicts) + len(self.late)

    def verdict(self, overrides: Sequence[str], config_dir: str | None = None) -> Verdict | None:
        """None if no time is left. The seed does not matter: jobs that differ in nothing else are judged once."""
        request = tuple("seed=0" if _SEED.fullmatch(word) else word for word in overrides), config_dir
        if request not in self._verdicts:
            if self._left_s < 0:
                self.late.add(request)
                return None
            start = time.process_time()
            with redirect_stdout(sys.stderr):  # what modules of the user print at import
                verdict = judge(*request)
            if self._verdicts:
                self._left_s -= time.process_time() - start
            self._verdicts[request] = verdict
        return self._verdicts[request]


def judge(overrides: Sequence[str], config_dir: str | None = None) -> Verdict:
    """Composes one experiment, and checks what does not depend on its environment."""
    try:
        experiment = Experiment.compose(*overrides, config_dir=config_dir)
    except Exception as error:
        return Verdict(error, doubtful=_is_doubtful(error, overrides), composed=False)
    try:
        experiment.check_without_env()
    except Exception as error:
        return Verdict(training_error=error, doubtful=_is_doubtful(error, overrides))
    return Verdict(unused=tuple(experiment.unused_overrides(overrides)))


def _is_doubtful(error: Exception, overrides: Sequence[str]) -> bool:
    if not isinstance(error, MarlnbError):  # a module of the user may raise anything
        return True
    has_import_path = any(":" in word.partition("=")[2] for word in overrides)
    return has_import_path or any(text in str(error) for text in ("import", "could not be loaded"))
