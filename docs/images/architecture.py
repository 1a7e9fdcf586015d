"""Draw docs/images/architecture.svg: the folders of marlnb as layers, with an arrow where one imports another.

usage: python docs/images/architecture.py [--check]

The layers are those of the import contract in pyproject.toml. The arrows are read from the code's imports;
type-checking imports are left out, and so is an arrow where a longer path connects the same two folders (transitive
reduction). `--check` draws nothing and exits with status 1 when the committed picture is out of date.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PICTURE = Path(__file__).with_suffix(".svg")
WIDTH, MARGIN, GAP = 1120, 24, 34
BOX_HEIGHT, LINE, LAYER_GAP = 34, 17, 30
CHARACTER = 6.6  # width of a letter of the small font


def layers() -> list[list[str]]:
    """Names of the top-level modules, the highest layer first."""
    contract = re.search(
        r'containers = \["marlnb"\].*?^layers = \[(.*?)^\]', (ROOT / "pyproject.toml").read_text(), re.M | re.S
    )
    assert contract is not None, "pyproject.toml has no layers contract for marlnb"
    return [re.findall(r"\w+", row) for row in re.findall(r'"(.*?)"', contract.group(1))]


def imported_modules(path: Path) -> Iterator[str]:
    """Dotted names that a file imports at run time."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    type_checking = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in type_checking:
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "marlnb":
            yield from (f"marlnb.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def imports(names: set[str]) -> dict[str, set[str]]:
    """Which top-level modules each of `names` imports."""
    edges: dict[str, set[str]] = defaultdict(set)
    for path in sorted((ROOT / "marlnb").rglob("*.py")):
        source = path.relative_to(ROOT / "marlnb").with_suffix("").parts[0]
        for module in imported_modules(path):
            parts = module.split(".")
            if len(parts) > 1 and parts[0] == "marlnb" and {source, parts[1]} <= names and source != parts[1]:
                edges[source].add(parts[1])
    return edges


def reduced(edges: dict[str, set[str]]) -> list[tuple[str, str]]:
    """The edges that no longer path replaces."""

    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        stack = [start]
        while stack:
            for following in edges.get(stack.pop(), ()):
                if following not in seen:
                    seen.add(following)
                    stack.append(following)
        return seen

    return [
        (source, target)
        for source in sorted(edges)
        for target in sorted(edges[source])
        if not any(target in reachable(other) for other in edges[source] - {target})
    ]


def subfolders(name: str) -> list[str]:
    folder = ROOT / "marlnb" / name
    return sorted(inner.name for inner in folder.glob("*") if (inner / "__init__.py").exists())


def wrapped(words: list[str], width: float) -> list[str]:
    """Words in lines that fit into `width` points."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 3 + len(word) <= width / CHARACTER:
            lines[-1] += f" · {word}"
        else:
            lines.append(word)
    return lines


def draw() -> str:
    # files of less interest than folders share the last row
    rows = [[name for name in row if (ROOT / "marlnb" / name).is_dir()] for row in layers()]
    rows = [row for row in rows if row]
    files = [
        name for row in layers() for name in row if (ROOT / "marlnb" / f"{name}.py").exists() and name != "__main__"
    ]
    boxes: dict[str, tuple[float, float, float, float]] = {}
    texts: dict[str, list[str]] = {}
    y = float(MARGIN)
    for row in [*rows, ["files"]]:
        width = (WIDTH - 2 * MARGIN - GAP * (len(row) - 1)) / len(row)
        for name in row:
            texts[name] = wrapped(files if name == "files" else subfolders(name), width - 24)
        height = BOX_HEIGHT + LINE * max(len(texts[name]) for name in row)
        for k, name in enumerate(row):
            boxes[name] = (MARGIN + k * (width + GAP), y, width, height)
        y += height + LAYER_GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y - LAYER_GAP + MARGIN:.0f}" '
        'font-family="DejaVu Sans, Helvetica, Arial, sans-serif">',
        "<title>Layers of marlnb: imports point downward</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#56606b"/></marker></defs>',
    ]
    edges = reduced(imports(set(boxes)))
    arriving: dict[str, list[str]] = defaultdict(list)
    leaving: dict[str, list[str]] = defaultdict(list)
    for source, target in edges:
        leaving[source].append(target)
        arriving[target].append(source)

    def position(name: str, others: list[str], other: str) -> float:
        """Where on a box's edge the arrow to or from `other` touches: in the order of the boxes' centres."""
        x, _, width, _ = boxes[name]
        order = sorted(others, key=lambda one: boxes[one][0] + boxes[one][2] / 2)
        return x + width * (order.index(other) + 1) / (len(order) + 1)

    for source, target in edges:
        x1, y1 = position(source, leaving[source], target), boxes[source][1] + boxes[source][3]
        x2, y2 = position(target, arriving[target], source), boxes[target][1]
        middle = (y2 - y1) / 2
        parts.append(
            f'<path d="M{x1:.1f} {y1:.1f} C{x1:.1f} {y1 + middle:.1f} {x2:.1f} {y2 - middle:.1f} {x2:.1f} {y2:.1f}" '
            'fill="none" stroke="#56606b" stroke-width="1.3" marker-end="url(#arrow)"/>'
        )
    for name, (x, top, width, height) in boxes.items():
        fill = "#f3f4f6" if name == "files" else "#e8f0fa"
        title = "marlnb/*.py" if name == "files" else f"{name}/"
        parts.append(
            f'<rect x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="6" '
            f'fill="{fill}" stroke="#9fb3c8"/>'
        )
        parts.append(
            f'<text x="{x + 12:.1f}" y="{top + 22:.1f}" font-size="15" font-weight="bold">{escape(title)}</text>'
        )
        for k, line in enumerate(texts[name]):
            parts.append(
                f'<text x="{x + 12:.1f}" y="{top + 40 + LINE * k:.1f}" font-size="12" fill="#33404d">'
                f"{escape(line)}</text>"
            )
    return "\n".join([*parts, "</svg>", ""])


def main(arguments: list[str]) -> int:
    picture = draw()
    if "--check" in arguments:
        if PICTURE.exists() and PICTURE.read_text(encoding="utf-8") == picture:
            return 0
        print(
            f"{PICTURE.relative_to(ROOT)} is out of date; run: python {Path(__file__).relative_to(ROOT)}",
            file=sys.stderr,
        )
        return 1
    PICTURE.write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
