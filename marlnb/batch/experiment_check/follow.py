"""Follow a notebook from its parameters to its experiments, with placeholders for everything else.

The cells' own Python runs: assignments, f-strings, loops, conditions and functions. Imports, files and output are
placeholders, so nothing is trained, read or written, and what depends on a result is skipped.
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from marlnb import errors
from marlnb.batch.experiment_check import cells as names
from marlnb.batch.experiment_check.cells import Cell, Statement
from marlnb.batch.experiment_check.judge import Judge, Verdict
from marlnb.batch.experiment_check.placeholder import MARK, PLACEHOLDER, Placeholder, Undecided

MAX_STEPS = 20_000  # statements of one job
MAX_RANGE = 1_000
_EFFECTS = ("breakpoint", "compile", "eval", "exec", "exit", "help", "input", "open", "print", "quit")
_PARTS = ("env", "algorithm", "model", "critic", "league", "evolution", "algorithms", "models", "critics", "experiment")


@dataclass
class Composition:
    """One call of `Experiment.compose`, or of `train`, `start` or `Trainer` that fails for the composed experiment.

    Attributes:
        cell: the cell's number.
        verdict: on its overrides; None if they are not known or there was no time.
        is_fatal: whether the notebook does not handle its error.
        is_trained: whether the composed experiment is trained without changes.
    """

    cell: int
    verdict: Verdict | None
    is_fatal: bool = False
    is_trained: bool = False


@dataclass
class Reached:
    """What a notebook composes with one job's parameters.

    Attributes:
        compositions: in order.
        unknown_cells: numbers of cells whose experiments depend on results.
    """

    compositions: list[Composition] = field(default_factory=list)
    unknown_cells: set[int] = field(default_factory=set)


class _TooLong(BaseException):
    pass


def follow(cells: Sequence[Cell], parameters: Mapping[str, Any], judge: Judge) -> Reached:
    """Every experiment that the cells compose with these parameters, which replace the defaults."""
    run = _Run(judge)
    try:
        for cell in cells:
            run.cell = cell.number
            for statement in cell.statements:
                run.execute(statement)
            if cell.holds_parameters:
                run.namespace.update(parameters)
    except _TooLong:
        run.reached.unknown_cells.add(run.cell)
    return run.reached


class _Run:
    def __init__(self, judge: Judge) -> None:
        self.reached, self.cell = Reached(), 0
        self._judge, self._n_steps = judge, 0
        self._marlnb = _Marlnb(self._compose, self._train)
        imported = {"mnb": self._marlnb, "marlnb": self._marlnb, "Experiment": self._marlnb.Experiment}  # as by `%run`
        effects = {**dict.fromkeys(_EFFECTS, PLACEHOLDER), "__import__": self._import, "range": _short_range}
        self.namespace: dict[str, Any] = {
            "__name__": "__main__",
            "__builtins__": _Names({**vars(builtins), **imported, **effects}),
            names.STEP: self._step,
            names.SKIP: self._skip,
            names.UNDECIDED: Undecided,
            names.PLACEHOLDER: PLACEHOLDER,
        }

    def execute(self, statement: Statement) -> None:
        """Runs it; if it fails or depends on a placeholder, the names that it binds become placeholders."""
        try:
            self._step()
            result = eval(statement.code, self.namespace)
            if inspect.iscoroutine(result):
                result.send(None)  # it ends at once: whatever it awaits is a placeholder
        except StopIteration:
            return
        except (Exception, SystemExit, Undecided) as error:
            self.namespace |= dict.fromkeys(statement.names, PLACEHOLDER)
            composed = self.reached.compositions
            if composed and composed[-1].verdict is not None and composed[-1].verdict.error is error:
                composed[-1].is_fatal = True
            else:
                self._skip(statement.composes)

    def _step(self) -> None:
        self._n_steps += 1
        if self._n_steps > MAX_STEPS:
            raise _TooLong

    def _skip(self, composes: bool) -> None:
        if composes:
            self.reached.unknown_cells.add(self.cell)

    def _import(self, name: str, *args: Any) -> Any:
        return self._marlnb if name.partition(".")[0] == "marlnb" else PLACEHOLDER

    def _compose(self, *overrides: Any, config_dir: Any = None) -> Placeholder:
        words = _known_words(overrides)
        if words is None or not _is_known(config_dir):
            self.reached.unknown_cells.add(self.cell)
            return PLACEHOLDER
        verdict = self._judge.verdict(words, config_dir)
        composition = Composition(self.cell, verdict)
        self.reached.compositions.append(composition)
        if verdict is not None and verdict.error is not None:
            raise verdict.error.with_traceback(None)
        return _Composed(composition)

    def _train(self, experiment: Any = None, *args: Any, **options: Any) -> Placeholder:
        if isinstance(experiment, _Composed):
            experiment.composition.is_trained = True
            verdict = experiment.composition.verdict
            if verdict is not None and verdict.training_error is not None:
                failed = replace(verdict, error=verdict.training_error)
                self.reached.compositions.append(Composition(self.cell, failed, is_trained=True))
                raise verdict.training_error.with_traceback(None)
        return PLACEHOLDER


class _Names(dict[str, Any]):
    """Builtins. Names that nothing defines are placeholders: IPython, a magic or a star import may define them."""

    def __missing__(self, name: str) -> Placeholder:
        return PLACEHOLDER


class _Marlnb(Placeholder):
    """The package as a notebook sees it: its errors, `Experiment.compose`, and what trains an experiment."""

    def __init__(self, compose: Any, train: Any) -> None:
        object.__setattr__(self, "Experiment", _Experiment(compose))
        for name in ("train", "start", "Trainer"):
            object.__setattr__(self, name, train)

    def __getattr__(self, name: str) -> Any:
        return getattr(errors, name, None) or super().__getattr__(name)


class _Experiment(Placeholder):
    def __init__(self, compose: Any) -> None:
        object.__setattr__(self, "compose", compose)


class _Composed(Placeholder):
    """An experiment as it is composed; what is made from it, as by `dataclasses.replace`, is a placeholder."""

    composition: Composition

    def __init__(self, composition: Composition) -> None:
        object.__setattr__(self, "composition", composition)


def _short_range(*bounds: int) -> range:
    made = range(*bounds)
    if len(made) > MAX_RANGE:
        raise Undecided
    return made


def _known_words(overrides: Sequence[Any]) -> list[str] | None:
    """The overrides that are known; None if a part's name is not, so that nothing can be said."""
    words = []
    for word in overrides:
        if not isinstance(word, str):
            return None
        key, equals, _ = word.partition(MARK)[0].partition("=")
        if MARK not in word:
            words.append(word)
        elif not equals or _chooses_part(key):
            return None
    return words


def _is_known(config_dir: Any) -> bool:
    return config_dir is None or (isinstance(config_dir, str) and MARK not in config_dir)


def _chooses_part(key: str) -> bool:
    """Whether a key names a part, such as `algorithm` and `models.speaker`, on whose name the valid options depend."""
    head, _, rest = key.partition(".")
    return head in _PARTS and (not rest or (head.endswith("s") and "." not in rest))
