"""Installs MeltingPot and marlnb in .peers/meltingpot, and runs this folder's tests there: `make meltingpot-test`.

Its package downloads saved bots (as large as everything else) while it is built, and imports TensorFlow for them. The
substrates need neither: an empty archive stands where its installer looks for one that is downloaded already.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / ".peers" / "meltingpot"
PACKAGE, BOTS = "dm-meltingpot==2.4.1", "meltingpot-assets-2.3.0.tar.gz"
NEEDED = (
    *("dmlab2d==1.0.2", "dm-env>=1.6,<2", "dm-tree>=0.1.9,<0.2", "immutabledict>=4,<5", "ml-collections>=1,<2"),
    *("chex>=0.1.90,<0.2", "networkx>=3,<4", "reactivex>=4,<7", "opencv-python-headless>=4", "pytest>=8.4,<10"),
    *("pytest-timeout>=2.4,<3",),
)


def install() -> Path:
    """The environment's Python; it is installed again where this file has changed since."""
    python, stamp, wanted = FOLDER / "bin" / "python", FOLDER / ".ready", Path(__file__).read_text()
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(FOLDER, ignore_errors=True)
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    venv.create(FOLDER, with_pip=uv is None)
    command = [uv, "pip", "install", "--python", str(python)] if uv else [str(python), "-m", "pip", "install"]
    links = os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS")
    environment = {**os.environ, **({"UV_FIND_LINKS": links} if links else {})}
    subprocess.run([*command, "--editable", str(ROOT), *NEEDED], check=True, env=environment)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(Path(folder, BOTS), "w:gz") as archive:
            empty = tarfile.TarInfo("assets")
            empty.type, empty.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(empty)
        subprocess.run([*command, "--no-deps", PACKAGE], check=True, env={**environment, "TMPDIR": folder})
    stamp.write_text(wanted)
    return python


if __name__ == "__main__":
    arguments = sys.argv[1:] or [str(Path(__file__).parent.relative_to(ROOT))]
    sys.exit(subprocess.call([str(install()), "-m", "pytest", *arguments], cwd=ROOT))
