"""Keep private vocabulary out of identifiers, messages, docstrings, comments and docs.

usage: python .ci/vocabulary.py [PATH ...]      (default: the package, tests, benchmarks and pages; see DEFAULT_PATHS)

Identifiers are the names that a file defines: variables, parameters, attributes, functions, classes. Text is every
string, docstring, comment and page. `CHANGELOG.md` is history and is not checked. Exit status 1 when anything is found.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_PATHS = ("marlnb", "tests", "benchmarks", "docs", "notebooks", "README.md", "CONTRIBUTING.md", "conftest.py")

# word in a name (split at underscores and capitals) -> what to write instead
IDENTIFIERS = {
    "found": "what the variable holds: matches, values, path",
    "told": "message, description",
    "anew": "again",
    "whoever": "the thing itself",
    "begun": "started",
    "began": "start",
    "said": "message, output",
    "lot": "rng",
    "beside": "with, loaded, other",
    "heed": "handle",
    "hurry": "interrupt",
    "watcher": "callback",
    "watchers": "callbacks",
    "unlearnt": "fixed",
    "learnt": "learned",
    "fewest": "min",
    "seldom": "rare",
    "somebody": "the thing itself",
    "nobody": "none",
}
# a module constant that begins so
CONSTANTS = {"MOST": "MAX", "LEAST": "MIN", "FEWEST": "MIN", "LONGEST": "MAX", "SMALLEST": "MIN", "FEW": "MIN"}
# in text: pattern -> what to write instead
TEXT = {
    r"\b(?:is|are|was|were|be|been) told\b": "an active verb: receives, is set to, is passed",
    r"\btold of\b": "reported, described",
    r"\banew\b": "again",
    r"\bbeside\b": "next to, with, compared with",
    r"\bg(?:o|oes|oing|one) on\b|\bwent on\b": "continue, resume",
    r"\bheld against\b": "compared with",
    r"\btells? of\b": "reports, shows",
    r"\bleft alone\b": "unchanged, uninterrupted",
    r"\bas (?:told|asked)\b": "as given, as requested",
    r"\bowes? (?:it|them) nothing\b": "is not used by",
    r"\bcannot be had\b|\bcan be had\b": "is not available",
    r"\bwhoever\b": "name the caller",
    r"\bsomebody\b|\bnobody\b": "name the reader, or use the passive",
    r"\bin (?:its|their) turn\b": "then, also",
    r"\bbroken off\b|\bbreaks off\b": "interrupted, stopped",
    r"\bmakes? nothing of\b|\bheld up\b": "delays, blocks",
    r"\bstranger(?:'s|s|s')?\b": "third party",
    r"\bare refused in words\b|\bis refused in words\b": "raise an error",
    r"\bbegun again\b|\bbegin again\b": "restart",
    r"\blies? (?:beside|beneath|next to)\b": "is in, is next to",
    r"\bso that (?:it|they) (?:is|are) there\b": "a purpose",
    r"\blearnt\b": "learned",
    r"\b[Tt]rainings(?:[ ,;:]|\.(?:\s|$))": "training runs",
}


# names in which a word is the right one, without underscores: `found_by` says how settings were found
NAMES_ALLOWED = {"foundby"}


def names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of everything that a file defines."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.alias) and node.asname:
            yield getattr(node, "lineno", 0), node.asname


def check_names(source: str) -> Iterator[tuple[int, str]]:
    for line, name in names(ast.parse(source)):
        if name.replace("_", "").lower() in NAMES_ALLOWED:
            continue
        words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
        for word in words:
            if (better := IDENTIFIERS.get(word.lower())) is not None:
                yield line, f"name {name!r}: {word.lower()!r} -> {better}"
        if name.isupper() and words and (better := CONSTANTS.get(words[0])) is not None:
            yield line, f"constant {name!r}: {words[0]}_ -> {better}_"


def check_text(text: str, first_line: int = 1) -> Iterator[tuple[int, str]]:
    for pattern, better in TEXT.items():
        for match in re.finditer(pattern, text, re.IGNORECASE):
            yield first_line + text.count("\n", 0, match.start()), f"{match.group()!r} -> {better}"


def check_python(source: str) -> Iterator[tuple[int, str]]:
    yield from check_names(source)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT) or tokenize.tok_name[token.type] == "FSTRING_MIDDLE":
            yield from check_text(token.string, token.start[0])


def check_notebook(source: str) -> Iterator[tuple[int, str]]:
    for number, cell in enumerate(json.loads(source)["cells"], 1):
        text = "".join(cell["source"])
        for _, message in check_text(text):
            yield number, f"cell {number}: {message}"


def check_file(path: Path) -> Iterator[tuple[int, str]]:
    source = path.read_text(encoding="utf-8")
    match path.suffix:
        case ".py":
            yield from check_python(source)
        case ".ipynb":
            yield from check_notebook(source)
        case _:
            yield from check_text(source)


def files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_file():
            yield path
        for pattern in ("*.py", "*.md", "*.ipynb", "*.js"):
            yield from sorted(inner for inner in path.rglob(pattern) if not inner.is_symlink())


def main(arguments: list[str]) -> int:
    paths = [Path(argument) for argument in arguments] or [ROOT / name for name in DEFAULT_PATHS]
    n_problems = 0
    for path in files(paths):
        for line, message in sorted(set(check_file(path))):
            print(f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}:{line}: {message}")
            n_problems += 1
    if n_problems:
        print(f"{n_problems} uses of private vocabulary; see .ci/vocabulary.py for the terms", file=sys.stderr)
    return 1 if n_problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
