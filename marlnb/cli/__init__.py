"""The command line: `marlnb <command>`.

Each command is one file in a subfolder of this package: its docstring is the help, `add_arguments` adds its options and
`run` returns its exit code, None for 0. A new file is a new command. Commands import heavy modules only when they run.

Results go to stdout; progress and messages go to stderr. Exit codes: 0 done; 1 failed; 2 bad usage or bad input,
nothing was started; 130 interrupted, what was trained or recorded so far is saved.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from types import ModuleType

from marlnb import errors
from marlnb.cli.exit_codes import BAD_INPUT, DONE, FAILED, INTERRUPTED
from marlnb.cli.output import escape_unencodable, open_closed_streams, print_text, say
from marlnb.errors import MarlnbError, nearest

SUBJECTS = ("training", "recordings", "batches", "setup", "inspection")
# the module of each command by name: every file in a subfolder is a command, and the subfolder is its subject
COMMANDS = {
    command.name: f"{folder.__name__}.{command.name}"
    for folder in [importlib.import_module(f"{__name__}.{subject}") for subject in SUBJECTS]
    for command in pkgutil.iter_modules(folder.__path__)
}
_INPUT_ERRORS = (
    *(errors.ConfigError, errors.RunError, errors.SiteError, errors.ShapeError),
    *(errors.RecordingError, errors.AnalysisError, errors.BatchError),
)
_WRITE_ERRORS = (errors.CheckpointWriteError, errors.RecordingWriteError)

_EPILOG = """\
examples:
  marlnb list envs
  marlnb train env=mpe/simple_spread algorithm=mappo frames=1_000_000 seed=0 run=runs/spread
  marlnb evaluate runs/spread --episodes 300 --seed 1000 --json
  marlnb record runs/spread --sites '*/actor/*' --episodes 200
  marlnb attribute runs/spread/recordings/recording.h5 --group agent
  marlnb benchmark notebooks/benchmark.yaml --out runs/benchmark --jobs 2
  marlnb batch notebooks/quickstart.ipynb -p algorithm=mappo,ippo -p seed=0..4

exit codes: 0 done; 1 failed; 2 bad usage or bad input, nothing was started; 130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code; never raises for what a user can cause.

    An error becomes one message on stderr and an exit code.
    """
    open_closed_streams()
    escape_unencodable()
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except SystemExit as stop:  # argparse has printed its help or its complaint
        return stop.code if isinstance(stop.code, int) else FAILED
    except _WRITE_ERRORS as error:  # in the middle of a training run or a recording
        return _complain(str(error), FAILED)
    except _INPUT_ERRORS as error:
        return _complain(str(error), BAD_INPUT)
    except MarlnbError as error:
        return _complain(f"{type(error).__name__}: {error}", FAILED)
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of stdout has gone, as in `marlnb list envs | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _complain(f"{where}{error.strerror or error}", FAILED)
    except Exception as error:
        from marlnb.plugins import user_code

        if (whose := user_code.describe_error(error)) is None:
            raise
        return _complain(f"code that marlnb called raised {whose}", FAILED)


def _run(words: list[str]) -> int:
    """Runs the command that the first word names, and returns its exit code."""
    if not words or words[0] in ("-h", "--help", "help"):
        print_text(_overview(), end="")
        return DONE if words else BAD_INPUT
    if words[0] in ("-V", "--version"):
        from marlnb.version import __version__

        print_text(f"marlnb {__version__}")
        return DONE
    if words[0] not in COMMANDS:
        close = nearest(words[0], COMMANDS)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        return _complain(f"no command {words[0]!r}; {hint}Valid commands: {', '.join(COMMANDS)}", BAD_INPUT)
    arguments = parser_of(words[0]).parse_intermixed_args(words[1:])
    return _load(words[0]).run(arguments) or DONE


def _load(command: str) -> ModuleType:
    return importlib.import_module(COMMANDS[command])


def parser_of(command: str) -> argparse.ArgumentParser:
    module = _load(command)
    parser = argparse.ArgumentParser(
        prog=f"marlnb {command}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=not hasattr(module, "print_help"),
    )
    module.add_arguments(parser)
    return parser


def _complain(message: str, code: int) -> int:
    say(f"marlnb: {message}")
    return code


def _overview() -> str:
    lines = []
    for subject in SUBJECTS:
        folder = f"{__name__}.{subject}"
        commands = [name for name, module in COMMANDS.items() if module.startswith(f"{folder}.")]
        lines.append((importlib.import_module(folder).__doc__ or "").strip().removesuffix("."))
        lines += [f"  {name:<10} {(_load(name).__doc__ or '').splitlines()[0]}" for name in commands]
    return (
        "usage: marlnb COMMAND ...\n\n"
        "Train multi-agent reinforcement-learning agents, record their hidden states, explain what they do.\n"
        "Each command has --help.\n\n" + "\n".join(lines) + "\n\n" + _EPILOG
    )
