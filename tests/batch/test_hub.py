"""`marlnb hub`: kernels are started by a Python that has jupyter_client and no marlnb, as a hub's JupyterLab would."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from marlnb.batch.hub import labextensions
from marlnb.batch.hub.installation import Installation
from marlnb.batch.hub.kernelspec import HubKernel
from marlnb.cli import main
from marlnb.errors import BatchError, ConfigError

WIDGETS = "@jupyter-widgets/jupyterlab-manager"
HOSTILE = {
    "QUOTES": """a'b"c`d\\e""",
    "COMMAND": "$(touch PWNED)`touch PWNED`;touch PWNED&touch PWNED|touch PWNED\n touch PWNED",
    "NEWLINES": "one\ntwo\n\n",
    "UNICODE": "søren 猫 \u202e",
    "BYTES": os.fsdecode(b"\xff\xfe"),
    "SPACES": "  a  b ",
    "GLOB": "* ~ $HOME !! {a,b} #x",
    "EMPTY": "",
}
# what a hub's environment has besides JupyterLab; marlnb, ipykernel and torch are not among them
OF_A_HUB = (
    *("jupyter_client*", "jupyter_core", "traitlets", "zmq", "pyzmq*", "tornado", "dateutil", "platformdirs"),
    *("six.py", "typing_extensions.py"),
)
START = """
import importlib.util, json, sys
from jupyter_client.manager import start_new_kernel
assert not importlib.util.find_spec("marlnb") and not importlib.util.find_spec("ipykernel")
manager, client = start_new_kernel(kernel_name=sys.argv[1], startup_timeout=100)
found = []
def keep(message):
    if message["msg_type"] in ("stream", "error"):
        found.append(message["content"].get("text") or "\\n".join(message["content"]["traceback"]))
client.execute_interactive(sys.argv[2], timeout=100, output_hook=keep)
client.stop_channels()
manager.shutdown_kernel(now=True)
print("".join(found), end="")
"""


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's own Jupyter folder, with a name that shells do not like."""
    folder = tmp_path / "it's $(a) user" / "jupyter"
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(folder))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.delenv("JUPYTER_PATH", raising=False)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture(scope="module")
def hub_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub")
    venv.create(folder, symlinks=True)
    (packages,) = (folder / "lib").glob("python3*/site-packages")
    ours = Path(next(path for path in sys.path if path.endswith("site-packages")))
    for pattern in OF_A_HUB:
        for path in ours.glob(pattern):
            (packages / path.name).symlink_to(path)
    return folder / "bin" / "python"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another place for this environment's labextensions, with two in it."""
    folder = tmp_path / "environment" / "share" / "jupyter" / "labextensions"
    for name, version in ((WIDGETS, "5.0.1"), ("anywidget", "0.9.0")):
        (folder / name / "static").mkdir(parents=True)
        (folder / name / "package.json").write_text(json.dumps({"version": version}))
        (folder / name / "static" / "remoteEntry.js").write_text(f"// {name} {version}")
    monkeypatch.setattr(labextensions, "environment_folder", lambda: folder)
    for name in ("ENV_JUPYTER_PATH", "SYSTEM_JUPYTER_PATH"):  # what this machine has is not asked
        monkeypatch.setattr(f"jupyter_core.paths.{name}", [])
    return folder


def _start(python: Path, code: str, name: str = "marlnb") -> str:
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    asked = subprocess.run(
        [python, "-c", START, name, code], env=clean, capture_output=True, text=True, timeout=200, check=False
    )
    assert asked.returncode == 0, asked.stderr
    return asked.stdout


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_command_that_removes_a_kernel_can_be_copied(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hub", "install", "--name", "b", "--prefix", "pre fix"]) == 0
    words = shlex.split(capsys.readouterr().err.partition("to remove it: marlnb ")[2])
    assert main(words) == 0 and not (tmp_path / "pre fix" / "share" / "jupyter" / "kernels" / "b").exists()


def test_another_jupyter_starts_the_kernel_with_its_modules_and_variables(
    data: Path, hub_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start = tmp_path / "modules" / "init" / "bash"
    start.parent.mkdir(parents=True)
    start.write_text('module() { [ "$1" = load ] && export LOADED="${LOADED:-}<$2>"; }\n')
    monkeypatch.setenv("MODULESHOME", str(tmp_path / "modules"))
    monkeypatch.setenv("LMOD_PKG", "/nonexistent")
    modules = [word for name in ("cuda/12.4", "a;touch${IFS}PWNED") for word in ("--module", name)]
    variables = [word for item in HOSTILE.items() for word in ("--env", "=".join(item))]
    assert main(["hub", "install", "--display-name", 'it\'s "mine"', *modules, *variables]) == 0
    assert f'kernel marlnb ("it\'s "mine"") installed in {data / "kernels" / "marlnb"}' in capsys.readouterr().out
    code = (
        "import json, os, shutil, sys, marlnb\n"
        "print(json.dumps([marlnb.__file__, sys.prefix, shutil.which('marlnb'), {**os.environ}]))"
    )
    file, prefix, command, environment = json.loads(_start(hub_python, code))
    assert file == str(Path(__file__).parents[2] / "marlnb" / "__init__.py") and prefix == sys.prefix
    assert Path(command).parent == Path(sys.executable).parent
    assert {name: environment[name] for name in HOSTILE} == HOSTILE
    assert environment["LOADED"] == "<cuda/12.4><a;touch${IFS}PWNED>"
    assert not list(tmp_path.rglob("PWNED"))


def test_a_module_that_cannot_be_loaded_says_so(data: Path, tmp_path: Path) -> None:
    Installation().install(HubKernel(modules=("cuda/12.4",)))
    bare = {"PATH": os.environ["PATH"], "LMOD_PKG": "/nonexistent", "MODULESHOME": str(tmp_path)}
    launch = ["bash", data / "kernels" / "marlnb" / "launch.sh", "--version"]
    (tmp_path / "init").mkdir()
    (tmp_path / "init" / "bash").write_text("module() { return 1; }\n")
    refused = subprocess.run(launch, env=bare, capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and refused.stderr == "marlnb: the module cuda/12.4 cannot be loaded\n"


def test_a_kernel_whose_environment_is_gone_says_so(data: Path, tmp_path: Path) -> None:
    Installation().install(HubKernel(python=tmp_path / "gone" / "bin" / "python"))
    launched = subprocess.run(["bash", data / "kernels" / "marlnb" / "launch.sh"], capture_output=True, text=True)
    assert (
        launched.returncode == 127 and "gone/bin/python does not exist, so this kernel cannot start" in launched.stderr
    )
    assert Installation().problems("marlnb") == [
        f"{tmp_path / 'gone' / 'bin' / 'python'} does not exist: the kernel cannot start"
    ]


def test_uninstall_leaves_the_folder_as_it_was(data: Path, environment: Path) -> None:
    (data / "kernels" / "other").mkdir(parents=True)
    (data / "kernels" / "other" / "kernel.json").write_text("{}")
    (data / "labextensions").mkdir()  # empty, and not ours to remove
    before = _files(data)
    Installation().install(HubKernel())
    Installation().install(HubKernel("two"))
    added = set(_files(data)) - set(before)
    assert {f"labextensions/{WIDGETS}/static/remoteEntry.js", "kernels/two/launch.sh", "marlnb/hub.json"} <= added
    messages = Installation().uninstall("two")
    assert f"labextension {WIDGETS} stays: marlnb needs it" in messages and (data / "labextensions" / WIDGETS).is_dir()
    Installation().uninstall("marlnb")
    assert _files(data) == before
    assert sorted(path.name for path in data.rglob("*") if path.is_dir()) == ["kernels", "labextensions", "other"]


def test_a_folder_that_was_not_there_is_gone_again(data: Path) -> None:
    Installation().install(HubKernel())
    assert (data / "kernels" / "marlnb" / "kernel.json").is_file()
    Installation().uninstall("marlnb")
    assert not data.exists() and data.parent.is_dir()


def test_a_users_own_labextension_is_kept_and_reported(data: Path, environment: Path) -> None:
    own = data / "labextensions" / WIDGETS
    own.mkdir(parents=True)
    (own / "package.json").write_text('{"version": "9.9.9"}')
    messages = Installation().install(HubKernel())
    assert messages[1].startswith(
        f"labextension {WIDGETS} 9.9.9 is already in {own}, this environment has 5.0.1: not changed"
    )
    assert messages[2:] == ["labextension anywidget 0.9.0 installed", "labextension marlnb: not in this environment"]
    Installation().uninstall("marlnb")
    assert _files(data) == {f"labextensions/{WIDGETS}/package.json": b'{"version": "9.9.9"}'}


def test_a_labextension_that_every_lab_has_is_not_put_before_it(
    data: Path, environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everybodys = tmp_path / "everybodys" / "labextensions" / "anywidget"
    everybodys.mkdir(parents=True)
    (everybodys / "package.json").write_text('{"version": "0.9.0"}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "everybodys"))
    assert f"labextension anywidget 0.9.0 is already in {everybodys}: not changed" in Installation().install(
        HubKernel()
    )
    assert not (data / "labextensions" / "anywidget").exists()


def test_installing_again_updates_its_own_labextension_only(data: Path, environment: Path) -> None:
    Installation().install(HubKernel())
    assert f"labextension {WIDGETS} 5.0.1 was installed already" in Installation().install(HubKernel())
    (environment / WIDGETS / "package.json").write_text('{"version": "5.1.0"}')
    (environment / WIDGETS / "static" / "remoteEntry.js").rename(environment / WIDGETS / "static" / "new.js")
    assert f"labextension {WIDGETS} 5.1.0 installed" in Installation().install(HubKernel())
    there = data / "labextensions" / WIDGETS
    assert sorted(_files(there)) == ["package.json", "static/new.js"]
    (there / "package.json").write_text('{"version": "6.0.0"}')  # as pip install --user would
    messages = Installation().install(HubKernel())
    assert messages[1].startswith(f"labextension {WIDGETS} 6.0.0 is already in {there}, this environment has 5.1.0")
    assert f"labextension {WIDGETS} was changed since the installation and stays in {there}" in (
        Installation().uninstall("marlnb")
    )
    assert sorted(_files(data)) == [f"labextensions/{WIDGETS}/package.json", f"labextensions/{WIDGETS}/static/new.js"]


def test_changed_files_are_reported_and_kept_unless_forced(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hub", "install"]) == 0
    launcher = data / "kernels" / "marlnb" / "launch.sh"
    launcher.write_text(launcher.read_text() + "# mine\n")
    assert main(["hub", "status"]) == 1
    assert f"{launcher} was changed" in capsys.readouterr().out
    for words in (["install"], ["uninstall"]):
        assert main(["hub", *words]) == 2
        assert f"{launcher}: changed since the installation" in capsys.readouterr().err
    assert launcher.read_text().endswith("# mine\n")
    assert main(["hub", "uninstall", "--force"]) == 0
    assert not data.exists()


def test_a_kernel_that_marlnb_did_not_install_is_neither_replaced_nor_removed(data: Path) -> None:
    other = data / "kernels" / "marlnb"
    other.mkdir(parents=True)
    (other / "kernel.json").write_text("{}")
    with pytest.raises(BatchError, match="already exists and was not made by `marlnb hub install`; give another"):
        Installation().install(HubKernel())
    with pytest.raises(BatchError, match=r"no kernel 'marlnb' of marlnb hub install.* was not made by"):
        Installation().uninstall("marlnb")
    assert _files(data) == {"kernels/marlnb/kernel.json": b"{}"}


def test_uninstall_keeps_files_added_to_the_kernels_folder(data: Path) -> None:
    Installation().install(HubKernel())
    mine = data / "kernels" / "marlnb" / "notes.txt"
    mine.write_text("mine")
    assert "it contains notes.txt, which marlnb did not install" in Installation().uninstall("marlnb")[-1]
    assert _files(data) == {"kernels/marlnb/notes.txt": b"mine"}


def test_a_prefix_is_readable_by_all_and_a_users_folder_by_no_one_else(data: Path, tmp_path: Path) -> None:
    Installation().install(HubKernel(variables={"TOKEN": "secret"}))
    assert (data / "kernels" / "marlnb" / "launch.sh").stat().st_mode & 0o777 == 0o600
    assert "secret" not in (data / "marlnb" / "hub.json").read_text()
    umask = os.umask(0o077)  # as many administrators have it
    try:
        assert main(["hub", "install", "--prefix", str(tmp_path / "prefix")]) == 0
    finally:
        os.umask(umask)
    shared = tmp_path / "prefix" / "share" / "jupyter"
    for path in (tmp_path / "prefix", *(tmp_path / "prefix").rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644), path
    assert main(["hub", "uninstall", "--prefix", str(tmp_path / "prefix")]) == 0 and not shared.exists()


def test_a_folder_that_cannot_be_written_is_refused(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BatchError, match=r"file/share/jupyter.*: Not a directory; without --prefix"):
        Installation(tmp_path / "file").install(HubKernel())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["install", "--name", "../x"], "a kernel's name may contain letters, digits"),
        (["install", "--name", ".."], "a kernel's name may contain letters, digits"),
        (["install", "--display-name", "a\nb"], "a kernel's display name must be one line of text"),
        (["install", "--module=-f"], "expected the name of a module as for `module load`, e.g. cuda/12.4; got '-f'"),
        (["install", "--env", "X"], "--env: expected NAME=VALUE; got 'X'"),
        (["install", "--env", "A=1", "--env", "A=2"], "--env A= is given twice"),
        (["install", "--env", "a b=c"], "'a b' is not a valid name of a variable"),
        (["install", "--env", "UID=0"], "'UID' is not a valid name of a variable: bash sets it itself"),
        (["install", "--force"], "marlnb hub install does not accept --force"),
        (["uninstall", "--env", "A=b"], "marlnb hub uninstall does not accept --env"),
        (["uninstall", "--name", "x"], "no kernel 'x' of marlnb hub install. Valid: (none)"),
    ],
)
def test_a_wrong_request_is_refused_and_nothing_is_done(
    data: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["hub", *words]) == 2
    assert message in capsys.readouterr().err and not data.exists()


def test_a_zero_byte_is_refused() -> None:
    with pytest.raises(ConfigError, match="must not contain a zero byte"):
        HubKernel(variables={"A": "\0"})


def test_status_without_a_kernel_fails(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hub", "status"]) == 1
    assert capsys.readouterr().out == f"{data} has no kernel that marlnb installed\n"
    assert main(["hub", "status", "--name", "mine"]) == 1
    assert capsys.readouterr().out == f"{data} has no kernel mine that marlnb installed\n"


def test_status_as_json(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hub", "install", "--env", "A=b"]) == 0
    capsys.readouterr()
    assert main(["hub", "status", "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert status["folder"] == str(data) and status["kernels"]["marlnb"]["variables"] == ["A"]
    (data / "kernels" / "marlnb" / "kernel.json").unlink()
    assert main(["hub", "status", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["kernels"]["marlnb"]["problems"] == [
        f"{data / 'kernels' / 'marlnb' / 'kernel.json'} is missing"
    ]


def test_it_takes_seconds_since_torch_is_not_loaded(data: Path) -> None:
    code = "import sys; from marlnb.cli import main; main(['hub', 'install']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert (data / "kernels" / "marlnb" / "kernel.json").is_file()
