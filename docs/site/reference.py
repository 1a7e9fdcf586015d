"""The pages of the API reference: which names each holds. mkdocstrings puts the docstrings into them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from marlnb.lazy import public_names

ROOT = Path(__file__).resolve().parents[2]
MODULES = {
    "Experiments": ("config", "experiment", "league_config", "evolution_config"),
    "Environments": ("envs",),
    "Sites and edits": ("models",),
    "Training and runs": ("training", "allocations"),
    "Leagues and populations": ("populations",),
    "Recordings": ("recording",),
    "Analyses": ("analysis",),
    "Gallery": ("galleries",),
    "Batches and benchmarks": ("batch",),
    "Widgets": ("widgets",),
    "Errors": ("errors",),
}
"""Pages of the names of `marlnb` itself: title, and the parts of the package that define them."""
OPTIONS = {
    "Options of algorithms": "marlnb/algorithms",
    "Options of networks": "marlnb/models/networks",
    "Options of leagues": "marlnb/populations/builders",
    "Options of evolution": "marlnb/populations/selection",
}
"""Pages of registered configurations with all their options: title and folder."""
PACKAGES = {
    "Figures": "marlnb.plots",
    "Panels": "marlnb.widgets",
    "Exercises": "marlnb.teaching",
    "Ground truth": "marlnb.groundtruth",
}
"""Pages of packages that users import from: title and package."""
INHERITED = "    options: { inherited_members: true }\n"
NOT_DOCUMENTED = {"version"}
TOP = "# API reference\n\nWhat you import from marlnb, made from the docstrings.\n\n| page | names |\n| --- | --- |\n"


def reference_pages() -> dict[str, str]:
    """The pages' text by path, the first one a table of all names.

    Raises:
        KeyError: a part of the package has public names, and no page.
    """
    names = public_documents()
    paths = {title: re.sub(r"\W+", "-", title.lower()) + ".md" for title in names}
    links = {
        title: ", ".join(f"[`{name.rsplit('.', 1)[1]}`]({paths[title]}#{name})" for name in page)
        for title, page in names.items()
    }
    rows = [f"| [{title}]({paths[title]}) | {links[title]} |" for title in names]
    pages = {
        f"reference/{paths[title]}": f"# {title}\n\n"
        + "\n".join(f"::: {name}\n{INHERITED if title in OPTIONS else ''}" for name in page)
        for title, page in names.items()
    }
    return {"reference/index.md": TOP + "\n".join(rows) + "\n", **pages}


def public_documents() -> dict[str, list[str]]:
    """The full names that each page documents, by its title."""
    title_of = {part: title for title, parts in MODULES.items() for part in parts}
    names: dict[str, list[str]] = {title: [] for title in MODULES}
    for name, module in public_names(ROOT / "marlnb" / "__init__.py").items():
        if module != "marlnb" and (part := module.split(".")[1]) not in NOT_DOCUMENTED:
            names[title_of[part]].append(f"marlnb.{name}")
    names["Errors"] = [f"marlnb.errors.{name}" for name in class_names(ROOT / "marlnb" / "errors.py")]
    for title, folder in OPTIONS.items():
        names[title] = [name for path in sorted((ROOT / folder).rglob("*.py")) for name in registered_classes(path)]
    names["Results of analyses"] = list(result_classes())
    for title, package in PACKAGES.items():
        file = ROOT.joinpath(*package.split("."), "__init__.py")
        names[title] = [f"{package}.{name}" for name in public_names(file)]
    return names


def result_classes() -> Iterator[str]:
    """What analyses return: the subclasses of `Result`."""
    for path in sorted((ROOT / "marlnb" / "analysis").rglob("*.py")):
        for name in class_names(path, base="Result"):
            yield f"{module_of(path)}.{name}"


def registered_classes(path: Path) -> Iterator[str]:
    """The classes of a file that a decorator registers under a name."""
    pattern = r"^@(?:ALGORITHMS|MODELS|LEAGUES|EVOLUTIONS)\.register\(.+\)\n(?:@.+\n)*class (\w+)"
    for name in re.findall(pattern, path.read_text(encoding="utf-8"), flags=re.MULTILINE):
        yield f"{module_of(path)}.{name}"


def class_names(path: Path, base: str = r"[^)]*") -> list[str]:
    """The classes that a file defines, in its order."""
    return re.findall(rf"^class (\w+)\({base}\):", path.read_text(encoding="utf-8"), flags=re.MULTILINE)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)
