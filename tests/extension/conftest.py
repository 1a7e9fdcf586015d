"""The wheel, installed in an environment of its own, and a JupyterLab in it. Run by `make extension-test`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ASKED = os.environ.get("MARLNB_EXTENSION_TESTS") == "1"
collect_ignore_glob = [] if ASKED else ["*"]
ROOT = Path(__file__).parents[2]

if ASKED:
    from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

    from tests.browser.lab import ARGUMENTS, CHROMIUM, Lab, lab_on
    from tests.extension.packages import install, install_wheel

    expect.set_options(timeout=30_000)  # a loaded machine

    @pytest.fixture(scope="session")
    def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = tmp_path_factory.mktemp("wheel")
        words = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
        subprocess.run(words, cwd=ROOT, env={**os.environ, "MARLNB_EXTENSION": "required"}, check=True)
        (path,) = folder.glob("marlnb-*.whl")
        return path

    @pytest.fixture(scope="session")
    def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """The Python of an environment with the installed wheel and this environment's JupyterLab."""
        installed = _environment(tmp_path_factory.mktemp("environment") / "env", wheel)
        for name in ("etc", "share/jupyter/lab"):  # Notebook 7 is enabled in etc
            (installed.parents[1] / name).symlink_to(Path(sys.prefix) / name)
        return installed

    @pytest.fixture(scope="session")
    def oldest_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """The Python of an environment with the installed wheel and JupyterLab 4.4."""
        return _environment(tmp_path_factory.mktemp("oldest") / "env", wheel, "jupyterlab==4.4.*")

    def _environment(folder: Path, wheel: Path, *packages: str) -> Path:
        """An environment with these packages and the wheel; what else they need comes from this one's environment."""
        venv.create(folder, symlinks=True, with_pip=False)
        installed = folder / "bin" / "python"
        if packages:
            install(installed, *packages)
        install_wheel(installed, wheel)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        packages_folder = folder / "lib" / version / "site-packages"
        (packages_folder / "rest.pth").write_text(sysconfig.get_path("purelib") + "\n")
        ours, theirs = Path(sys.prefix) / "share" / "jupyter", folder / "share" / "jupyter"
        for name in ("@jupyter-widgets", "anywidget", "@jupyter-notebook"):
            (theirs / "labextensions" / name).symlink_to(ours / "labextensions" / name)
        return installed

    @pytest.fixture(scope="session")
    def served_lab(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
        with lab_on(tmp_path_factory.mktemp("lab"), python=python) as served:
            yield served

    @pytest.fixture
    def lab(served_lab: Lab) -> Iterator[Lab]:
        """One JupyterLab for all tests; its folder is empty for the next test, also after a failure."""
        yield served_lab
        for path in served_lab.folder.glob("[!.]*"):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()

    @pytest.fixture(scope="session")
    def browser() -> Iterator[Browser]:
        with sync_playwright() as playwright:
            opened = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
            yield opened
            opened.close()

    @pytest.fixture
    def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
        """A page that must raise no error; its picture is kept as `tests/browser` does."""
        opened = browser.new_page(viewport={"width": 1300, "height": 950})
        errors: list[str] = []
        opened.on("pageerror", lambda error: errors.append(str(error)))
        yield opened
        _keep(opened, request.node.name)
        opened.close()
        assert errors == []

    @pytest.fixture
    def keep(request: pytest.FixtureRequest) -> Callable[..., None]:
        """`keep(page or locator, name)`: a picture in the folder MARLNB_SCREENSHOTS, where that is set."""
        return lambda shown, name: _keep(shown, f"{request.node.name}-{name}")

    def _keep(shown: Page | Locator, name: str) -> None:
        folder = os.environ.get("MARLNB_SCREENSHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            shown.screenshot(path=str(Path(folder) / f"{name}.png"))
