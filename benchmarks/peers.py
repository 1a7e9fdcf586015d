"""Makes the virtual environments of the libraries that marlnb is compared with, each in its own folder under .peers.

BenchMARL needs an older torchrl than marlnb's and AgileRL an older PettingZoo, so they cannot share one environment.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCHMARL, AGILERL, CAPTURE, JAXMARL, WARPDRIVE = (
    ROOT / ".peers" / name for name in ("benchmarl", "agilerl", "capture", "jaxmarl", "warpdrive")
)
HAS_GPU = shutil.which("nvidia-smi") is not None

PEERS = {
    BENCHMARL: "benchmarl.environments",
    AGILERL: "agilerl.algorithms",
    CAPTURE: "transformer_lens",
    JAXMARL: "jaxmarl",
    WARPDRIVE: "warp_drive.env_wrapper",
}
NEEDS_GPU = (WARPDRIVE,)
FOR_GPU = {JAXMARL: ("jax[cuda12]",)}
# WarpDrive requires PyCUDA, which needs NVIDIA's compiler; its Numba back-end does not
WITHOUT_DEPENDENCIES = {WARPDRIVE: ("rl-warp-drive==2.7.1",)}

# torchrl 0.11 gets environments from this module of PettingZoo, which imports every game of Atari and has no MPE
ALL_MODULES = '''"""The environments that are measured; in place of PettingZoo's list of all of them."""

from mpe2 import simple_spread_v3
from pettingzoo.sisl import multiwalker_v9

all_environments = {"multiwalker_v9": multiwalker_v9, "simple_spread_v3": simple_spread_v3}
'''


def python(folder: Path) -> Path:
    return folder / "bin" / "python"


def run_script(folder: Path, module: str, *words: object) -> None:
    """Runs a module of this repository with a peer's Python: in one thread, on the CPU, without a screen."""
    command = [str(python(folder)), "-m", module, *map(str, words)]
    variables = {"OMP_NUM_THREADS": "1", "SDL_VIDEODRIVER": "dummy", "JAX_PLATFORMS": "cpu"}
    subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=True)


def install(folder: Path, check: str) -> None:
    """Makes `folder` a virtual environment with its peer, by uv where it is installed; keeps one that is up to date.

    Args:
        check: a module that must then import.
    """
    stamp = folder / ".ready"
    if stamp.exists() and stamp.read_text() == _wanted(folder):
        return
    shutil.rmtree(folder, ignore_errors=True)
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    venv.create(folder, with_pip=uv is None)
    installer = [uv, "pip", "install", "--python"] if uv else []
    command = [*installer, str(python(folder))] if uv else [str(python(folder)), "-m", "pip", "install"]
    words = ["-r", str(_requirements(folder)), *_for_gpu(folder)]
    subprocess.run([*command, *words], check=True, env=_environment())
    if folder in WITHOUT_DEPENDENCIES:
        subprocess.run([*command, "--no-deps", *WITHOUT_DEPENDENCIES[folder]], check=True, env=_environment())
    if folder == BENCHMARL:
        _replace(_site_packages(folder) / "pettingzoo" / "utils" / "all_modules.py", ALL_MODULES)
    subprocess.run([str(python(folder)), "-c", f"import {check}"], check=True, cwd=ROOT)
    stamp.write_text(_wanted(folder))


def make_wheels(folder: Path, wheels: Path) -> None:
    """Wheels of a peer and of all that it needs, for a machine with a GPU and without internet, with this Python."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(wheels)]
    subprocess.run([*command, "-r", str(_requirements(folder)), *FOR_GPU.get(folder, ())], check=True)
    if folder in WITHOUT_DEPENDENCIES:
        subprocess.run([*command, "--no-deps", *WITHOUT_DEPENDENCIES[folder]], check=True)


def _requirements(folder: Path) -> Path:
    return Path(__file__).parent / f"requirements-{folder.name}.txt"


def _wanted(folder: Path) -> str:
    return _requirements(folder).read_text() + (ALL_MODULES if folder == BENCHMARL else "") + "".join(_for_gpu(folder))


def _for_gpu(folder: Path) -> tuple[str, ...]:
    return FOR_GPU.get(folder, ()) if HAS_GPU else ()


def _environment() -> dict[str, str]:
    links = os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS")
    return {**os.environ, **({"UV_FIND_LINKS": links} if links else {})}


def _site_packages(folder: Path) -> Path:
    (path,) = folder.glob("lib/python*/site-packages")
    return path


def _replace(path: Path, text: str) -> None:
    """Replaces the file instead of changing it, since it may be shared with the installer's cache."""
    path.unlink(missing_ok=True)
    path.write_text(text)


def main() -> None:
    names = [folder.name for folder in PEERS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"only these of {', '.join(names)}")
    parser.add_argument("--wheels", type=Path, help="write wheels to this folder instead, to install them elsewhere")
    arguments = parser.parse_args()
    wanted = arguments.names or [folder.name for folder in PEERS if HAS_GPU or folder not in NEEDS_GPU]
    if unknown := sorted(set(wanted) - set(names)):
        parser.error(f"no peer {', '.join(unknown)}; valid: {', '.join(names)}")
    for folder, check in PEERS.items():
        if folder.name not in wanted:
            continue
        if arguments.wheels is not None:
            make_wheels(folder, arguments.wheels)
            print(f"wheels of {folder.name} are in {arguments.wheels}")
            continue
        install(folder, check)
        print(f"{folder.name} is ready in {folder.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
