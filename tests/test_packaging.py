"""What a fresh clone and an installed wheel rely on: the commands, the wheel, the layers, the documentation's words."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forked import run_forked

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "marlnb"
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
BENCHMARKS = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py") if "def main(" in path.read_text())
ENTRIES = "marlnb/galleries/entries/"
EXTENSION = ".data/data/share/jupyter/labextensions/marlnb/"
NOT_INSTALLED = {"triton"}  # `make triton-test` brings it; one module is a kernel for it
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if path.name != "__main__.py"
)


def run(*words: str, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    # the folder of the command under test comes first, before an editable install
    env = {**os.environ, "PYTHONPATH": str(cwd), **variables}
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def test_every_module_imports_without_a_warning() -> None:
    """Warnings are errors here; of a module that tests import, they were when those were collected."""
    failed = {}
    for module in MODULES:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name not in NOT_INSTALLED:
                failed[module] = error
        except Exception as error:
            failed[module] = error
    assert failed == {}


def test_importing_marlnb_and_its_command_brings_nothing_heavy() -> None:
    heavy = ("torch", "numpy", "pandas", "matplotlib", "hydra", "captum", "h5py", "sklearn", "pettingzoo", "IPython")
    code = f"import sys, marlnb, marlnb.cli; print([name for name in {heavy} if name in sys.modules])"
    assert run(sys.executable, "-c", code).stdout.strip() == "[]"


def test_no_file_has_a_name_that_says_nothing() -> None:
    empty = {"utils", "util", "common", "helpers", "misc", "base"}
    assert [path for path in PACKAGE.rglob("*.py") if path.stem in empty] == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder))
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("marlnb-*-py3-none-any.whl")
    return path


def copied_by_docker() -> set[str]:
    """What the Dockerfile copies before it installs, less what .dockerignore leaves out."""
    before = (ROOT / "Dockerfile").read_text().split("RUN pip install")[0].splitlines()
    sources = {word for line in before if line.startswith("COPY ") for word in line.split()[1:-1]}
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    pairs = [(source, Path(source), item, Path(item)) for source in sources for item in sent]
    return {s for s, path, _, other in pairs if path.is_relative_to(other)} | {
        item for _, path, item, other in pairs if other.is_relative_to(path)
    }


def copied_by_apptainer() -> set[str]:
    files = (ROOT / "apptainer.def").read_text().split("%files")[1].split("%post")[0]
    return {line.split()[0] for line in files.splitlines() if line.strip()}


@pytest.mark.parametrize("copied", [copied_by_docker, copied_by_apptainer])
def test_what_a_container_copies_can_be_installed(tmp_path: Path, copied: Callable[[], set[str]]) -> None:
    """The folder that pip gets inside; the containers themselves are not built here."""
    for name in copied():
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists() or "labextension" not in name:  # that is there once `make extension` has built it
            shutil.copy(source, target)
    built = run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    (wheel,) = (tmp_path / "dist").glob("marlnb-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    files = {path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py")}
    assert files <= names and any(name.startswith(ENTRIES) for name in names)


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    inside = {name for name in names if ".dist-info/" not in name and EXTENSION not in name}
    hidden = ("__pycache__", ".ipynb_checkpoints")
    files = {path.relative_to(ROOT) for path in PACKAGE.rglob("*") if path.is_file()}
    package = {path.as_posix() for path in files if not set(hidden) & set(path.parts)}
    entries = {name for name in inside if name.startswith(ENTRIES)}
    patterns = ("README.md", "*.ipynb", "teaching/*.ipynb")
    pages = [path.relative_to(ROOT) for pattern in patterns for path in (ROOT / "notebooks").glob(pattern)]
    notebooks = {f"marlnb/lab/{path.as_posix()}" for path in pages}
    assert inside == package | entries | notebooks and "marlnb/lab/notebooks/quickstart.ipynb" in inside
    shipped = {name.removeprefix(ENTRIES).split("/")[0] for name in entries}
    folders = [ROOT / "data" / name for name in shipped]
    data = {path.relative_to(ROOT / "data").as_posix() for folder in folders for path in folder.rglob("*.*")}
    assert "speaker_listener" in shipped and {f"{ENTRIES}{name}" for name in data} == entries
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_wheel_holds_the_jupyterlab_extension_where_it_is_built(wheel: Path) -> None:
    built = ROOT / "extensions" / "lab" / "labextension"
    expected = {path.relative_to(built).as_posix() for path in built.rglob("*") if path.is_file()}
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition(EXTENSION)[2] for name in names if EXTENSION in name} == expected


def test_a_wheel_that_needs_the_extension_is_not_built_without_it(tmp_path: Path) -> None:
    for name in ("marlnb", "extensions"):
        (tmp_path / name).mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "extensions/hatch_build.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    words = (sys.executable, "-m", "hatchling", "build", "--target", "wheel")
    done = run(*words, cwd=tmp_path, MARLNB_EXTENSION="required")
    assert done.returncode != 0 and "make extension" in done.stderr


def test_wheel_states_python_licence_and_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {Path(name).name: archive.read(name).decode() for name in archive.namelist() if ".dist-info/" in name}
    assert "Requires-Python: >=3.10\n" in files["METADATA"]
    assert "License-Expression: MIT\n" in files["METADATA"]
    assert "marlnb = marlnb.cli:main" in files["entry_points.txt"]


def test_unpacked_wheel_runs_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    listed = run(sys.executable, "-m", "marlnb", "list", "algorithms", cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert "mappo" in listed.stdout
    gallery = run(sys.executable, "-m", "marlnb", "gallery", "show", "speaker_listener", cwd=tmp_path)
    assert gallery.returncode == 0 and str(tmp_path / ENTRIES) in gallery.stdout, gallery.stderr
    where = run(sys.executable, "-c", "import marlnb; print(marlnb.__file__)", cwd=tmp_path).stdout.strip()
    assert Path(where).is_relative_to(tmp_path)


def test_a_container_image_gets_every_module() -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text().split() if line.startswith("**/")]
    for pattern in ignored:
        hidden = [str(path) for path in PACKAGE.glob(pattern) if any(path.glob("*.py"))]
        assert hidden == [], f"{pattern} keeps them from the image"


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()"
    return run(sys.executable, "-c", code, "--no-cache", "--config", "pyproject.toml", cwd=folder)


def test_imports_run_downward_only() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("module", "imported"),
    [("training/seeds.py", "marlnb.recording.file.reader"), ("models/sites.py", "marlnb.envs.vector")],
    ids=["upward", "sideways"],
)
def test_planted_import_breaks_the_layers(module: str, imported: str, tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "marlnb", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "marlnb" / module).open("a") as file:
        file.write(f"\nimport {imported}\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"-> {imported} (l." in done.stdout


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_promised_commands_are_in_the_makefile() -> None:
    assert {"demo", "test", "lab", "check", "bench", "wheel", "help"} <= make_targets()
    assert re.findall(r"^make (\w+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE) == ["check", "test"]


def test_help_lists_every_benchmark() -> None:
    listed = run("make", "help").stdout
    assert set(re.findall(r"^make bench-(\w+)", listed, re.MULTILINE)) >= set(BENCHMARKS) - {"peers"}


HELP = """
import contextlib, io, json, pathlib, runpy, sys, warnings
warnings.simplefilter("ignore")  # that runpy finds a benchmark imported by another one
results = {}
file, *names = sys.argv[1:]
for name in names:
    sys.argv = [name, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            runpy.run_module(f"benchmarks.{name}", run_name="__main__")
            code = "no exit"
        except SystemExit as end:
            code = end.code
        except Exception as error:
            code = repr(error)
    results[name] = (code, out.getvalue().splitlines())
pathlib.Path(file).write_text(json.dumps(results))
"""


@pytest.fixture(scope="module")
def benchmark_help(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[object, list[str]]]:
    """Exit code and lines of `--help` of each, asked in one process, which has imported torch already."""
    file = tmp_path_factory.mktemp("help") / "help.json"
    assert run_forked(HELP, file, *BENCHMARKS) == 0
    help_by_name: dict[str, tuple[object, list[str]]] = json.loads(file.read_text())
    return help_by_name


@pytest.mark.parametrize("name", BENCHMARKS)
def test_benchmark_explains_itself(name: str, benchmark_help: dict[str, tuple[object, list[str]]]) -> None:
    code, lines = benchmark_help[name]
    assert code == 0 and len(lines) > 3, code


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stripped_and_has_one_parameters_cell(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert len([cell for cell in cells if "parameters" in cell["metadata"].get("tags", [])]) == 1


def test_no_machine_is_named() -> None:
    texts = [ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / ".ci" / "run", *PAGES, *NOTEBOOKS]
    texts += [path for folder in ("marlnb", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    private = re.compile("|".join(("/" + "work/", "/" + "opt/", "/" + "root/", "pypi" + r"\.org", "index-" + "url")))
    assert [path.name for path in texts if private.search(path.read_text(encoding="utf-8"))] == []
