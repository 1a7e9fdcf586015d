"""Cells read without being executed: what is waited for, downloaded, opened and read from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from marlnb.batch.doctor.request import DoctorRequest
from marlnb.batch.profile import Profile
from marlnb.batch.sweep.sweep import Sweep
from tests.batch.doctor.notebooks import answers, messages, subject, write


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("name = input('who?')", "calls input()"),
        ("import getpass\nkey = getpass.getpass()", "password"),
        ("x = 1\nbreakpoint()", "debugger"),
        ("%debug", "debugger"),
        ("%matplotlib qt5", "no screen"),
        ("env = make(render_mode='human')", "rgb_array"),
    ],
)
def test_what_waits_for_a_person_fails_with_the_cells_number(tmp_path: Path, cell: str, words: str) -> None:
    (problem,) = messages("fail", answers("interaction", subject(tmp_path, "1 + 1", cell)))
    assert "cell 4 " in problem and words in problem


def test_cells_that_do_not_wait_for_input_pass(tmp_path: Path) -> None:
    cells = ("%matplotlib inline", "plt.show()", "make(render_mode='rgb_array')", "self.input(3)", "# input('x')")
    assert answers("interaction", subject(tmp_path, *cells)) == []


@pytest.mark.parametrize(
    "cell",
    [
        "!pip install gym",
        "%pip install -q gym",
        "!python -m pip install x",
        "%%bash\ncd x\nwget http://a/b",
        "files = !curl -O http://a/b",
        "!git clone https://a/b",
        "import requests\nrequests.get('x')",
        "from urllib.request import urlretrieve\nurlretrieve(u)",
        "urllib.request.urlopen(u)",
        "AutoModel.from_pretrained('gpt2')",
        "hf_hub_download('a', 'b')",
        "gdown.download(u)",
        "torch.hub.load('a', 'b')",
        "pd.read_csv('https://a/b.csv')",
        "MNIST('data', download=True)",
    ],
)
def test_what_needs_a_network_is_a_warning(tmp_path: Path, cell: str) -> None:
    (warning,) = messages("warn", answers("downloads", subject(tmp_path, cell)))
    assert "cell 3 needs a network" in warning


def test_what_needs_none_is_no_warning(tmp_path: Path) -> None:
    cells = (
        "# !pip install gym",
        "text = 'pip install gym'",
        "AutoModel.from_pretrained('weights', local_files_only=True)",
        "pd.read_csv('table.csv')",
        "!ls",
        "!pip install --no-index --find-links wheels gym",
        "MNIST('data', download=False)",
    )
    (finding,) = answers("downloads", subject(tmp_path, *cells))
    assert finding.level == "ok"


def test_data_that_is_not_there_fails_and_what_is_written_does_not(tmp_path: Path) -> None:
    there = tmp_path / "cwd" / "there.csv"
    (tmp_path / "cwd").mkdir()
    there.touch()
    cells = (
        "mnb.Run.open('runs/missing')",
        "pd.read_csv('there.csv')",
        "open('out.txt', 'w')",
        "open(f'data/{name}.txt')",
        "mnb.Run.open(run)",  # the job's own folder
        "weights = '/no/such/folder/w.pt'",
    )
    examined = subject(tmp_path, *cells, sweep=Sweep({}, {"name": "x"}))
    findings = answers("data and weights", examined)
    first, second = messages("fail", findings)
    assert "cell 3 opens 'runs/missing' with mnb.Run.open()" in first
    assert "cell 6 opens 'data/x.txt'" in second
    (warned,) = messages("warn", findings)
    assert "cell 8 names /no/such/folder/w.pt" in warned


def test_what_the_notebook_writes_is_there(tmp_path: Path) -> None:
    cells = (
        "os.makedirs('data')\nmnb.train(experiment, 'runs/a')\ntable.to_csv('scores.csv', sep='')",
        "mnb.Recording.open('runs/a/recordings/flight.h5'), pd.read_csv('scores.csv')",
        "with open('notes.txt', 'w') as file: ...\nopen('./notes.txt').read()",
        "np.load('data/elsewhere.npy')",
        "pd.read_csv('later.csv')",
        "table.to_csv(path_or_buf='later.csv')",
    )
    failures = messages("fail", answers("data and weights", subject(tmp_path, *cells)))
    assert [text.split()[3] for text in failures] == ["'data/elsewhere.npy'", "'later.csv'"]


def test_paths_on_a_local_disk_are_reported_for_a_cluster(tmp_path: Path) -> None:
    from marlnb.batch.doctor.files import is_local

    if not is_local(tmp_path):
        pytest.skip("the folder for temporary files is on a shared file system here")
    cell = f"folder = {str(tmp_path)!r}"
    assert messages("warn", answers("data and weights", subject(tmp_path, cell))) == []
    examined = subject(tmp_path, cell, profile=Profile(executor="slurm"))
    (warned,) = messages("warn", answers("data and weights", examined))
    assert "nodes cannot see" in warned


def test_variables_that_are_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET_ANYWHERE", raising=False)
    monkeypatch.setenv("SET_IN_THE_SHELL", "1")
    cells = (
        "os.environ['NOT_SET_ANYWHERE']",
        "os.getenv('NOT_SET_ANYWHERE')",
        "os.environ['SET_HERE'] = 'x'\nos.environ['SET_HERE']",
        "os.environ['SET_IN_THE_SHELL'], os.environ['SLURM_JOB_ID'], os.environ['FROM_PROFILE']",
        "os.environ.get('NOT_SET_ANYWHERE', 'x')",
    )
    local = answers("variables", subject(tmp_path, *cells, profile=Profile(environment={"FROM_PROFILE": "x"})))
    assert [text.split()[1] for text in messages("fail", local)] == ["3", "6"]  # 6: SLURM_JOB_ID, without SLURM
    assert [text.split()[1] for text in messages("warn", local)] == ["4"]
    slurm = Profile(executor="slurm", environment={"FROM_PROFILE": "x"})
    warned = messages("warn", answers("variables", subject(tmp_path, *cells, profile=slurm)))
    (handed,) = [text for text in warned if "cell 6" in text]
    assert "SET_IN_THE_SHELL" in handed and "not passed to jobs" in handed


def test_imports_and_environments_are_read_from_the_cells(tmp_path: Path) -> None:
    cells = (
        "import numpy as np, os.path\nfrom scipy.stats import norm",
        "try:\n    import cupy\nexcept ImportError:\n    cupy = None",
        "from . import x\ndef f():\n    import torch\nawait run",
        "compose(f'env={env}', 'env=mpe/simple_tag', 'env.max_steps=3', f'env={unknown}')",
    )
    examined = subject(tmp_path, *cells, sweep=Sweep({"env": ("a/b", "c/d")}, {}))
    assert examined.modules == {"numpy": 3, "os.path": 3, "scipy.stats": 3, "torch": 5}
    assert examined.environments == {"a/b": 6, "c/d": 6, "mpe/simple_tag": 6}


def test_the_notebook_itself(tmp_path: Path) -> None:
    (problem,) = messages("fail", answers("notebook", subject(tmp_path, "x = (1,", "y = 2")))
    assert "cell 3 is not valid Python" in problem
    bare = write(tmp_path / "b.ipynb", parameters="n: int\nseed = 0")
    findings = answers("notebook", DoctorRequest(Profile(), tmp_path, tmp_path, bare))
    assert "parameter 'n' has neither a default nor a value" in messages("fail", findings)[0]
    assert "no parameter `run`" in messages("warn", findings)[0]
