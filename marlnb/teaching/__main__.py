"""For teachers: make the students' versions of exercises, and measure the memory that a class needs.

python -m marlnb.teaching students teaching-solutions/*.ipynb --out notebooks/teaching
python -m marlnb.teaching students teaching-solutions/*.ipynb --out ~/class
python -m marlnb.teaching memory teaching-solutions/*.ipynb
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import nbformat

from marlnb.errors import ConfigError, MarlnbError


def main(arguments: list[str] | None = None) -> int:
    """0; 2 for a bad request."""
    parser = argparse.ArgumentParser(
        prog="python -m marlnb.teaching", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    students = commands.add_parser("students", help="write the versions without solutions")
    students.add_argument("notebooks", nargs="+", type=Path)
    students.add_argument("--out", required=True, type=Path, help="folder for the students' versions")
    memory = commands.add_parser(
        "memory", help="execute notebooks and print the peak memory and computing time of their kernels"
    )
    memory.add_argument("notebooks", nargs="+", type=Path)
    options = parser.parse_args(arguments)
    try:
        for path in options.notebooks:
            print(_students(path, options.out) if options.what == "students" else _memory(path), flush=True)
    except (MarlnbError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


def _students(path: Path, out: Path) -> str:
    from marlnb.teaching.student import student_version

    try:
        instructor = nbformat.read(path, 4)  # type: ignore[no-untyped-call]
    except (nbformat.reader.NotJSONError, nbformat.ValidationError) as error:
        raise ConfigError(f"{path} is not a notebook: {str(error)[:200]}") from error
    student = student_version(instructor)
    target = out / path.name
    if target.resolve() == path.resolve():
        raise OSError(f"{target} is the version with solutions; choose another folder")
    out.mkdir(parents=True, exist_ok=True)
    target.write_text(nbformat.writes(student, indent=1) + "\n", encoding="utf-8")  # type: ignore[no-untyped-call]
    return str(target)


def _memory(path: Path) -> str:
    from marlnb.teaching.memory import measure

    return str(measure(path))


if __name__ == "__main__":
    sys.exit(main())
