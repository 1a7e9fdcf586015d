"""A kernel is really started, by the path that a job takes, and asked what it has. About 10 s a kernel."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from marlnb.batch.doctor.request import DoctorRequest
from marlnb.batch.profile import Profile
from tests.batch.doctor.notebooks import answers, messages, subject, write


def test_what_a_kernel_has_and_lacks(tmp_path: Path) -> None:
    cells = (
        "import numpy, json, marlnb.batch.doctor.check, os.path",
        "import rlcardd\nimport marlnb.no_such_part",
        "import neighbour",
        "compose('env=mpe/simple_tag'), compose('env=mpe/no_such_env')",
    )
    examined = subject(tmp_path, *cells)
    (examined.cwd / "neighbour.py").touch()  # a module next to the notebook can be imported, as in a job
    assert messages("fail", answers("kernel", examined)) == []
    assert examined.kernel_report.python == ".".join(map(str, sys.version_info[:3]))
    assert "marlnb" in messages("ok", answers("environment", examined))[0]
    first, second = messages("fail", answers("imports", examined))
    assert "cell 4 imports marlnb.no_such_part" in first
    assert "cell 4 imports rlcardd" in second and "-m pip install 'rlcardd'" in second
    (broken,) = messages("fail", answers("environments", examined))
    assert "cell 6: env=mpe/no_such_env cannot be built" in broken and "simple" in broken
    assert not list(examined.cwd.glob("*.json"))  # nothing is left behind


def test_a_kernel_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    examined = DoctorRequest(
        Profile(), tmp_path, tmp_path, write(tmp_path / "a.ipynb", "import numpy", kernel="conda-old")
    )
    (problem,) = messages("fail", answers("kernel", examined))
    assert "'conda-old', which is not installed" in problem and "python3" in problem
    assert messages("warn", answers("imports", examined))  # said, not passed over


def test_a_python_without_marlnb_or_without_jupyter(tmp_path: Path) -> None:
    missing = subject(tmp_path, profile=Profile(python="/no/such/python"))
    assert missing.python == ""
    assert "'/no/such/python' does not exist" in messages("fail", answers("kernel", missing))[0]
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'libfoo.so: cannot open shared object file' >&2\nexit 127\n")
    broken.chmod(0o755)
    (problem,) = messages("fail", answers("kernel", subject(tmp_path, profile=Profile(python=str(broken)))))
    assert "libfoo.so: cannot open" in problem
    bare = subject(tmp_path, profile=Profile(python=sys.base_prefix + "/bin/python3"))
    if not Path(bare.python or "/none").exists():
        pytest.skip("the Python under the environment is not there")
    (problem,) = messages("fail", answers("kernel", bare))
    assert "No module named" in problem


def test_a_notebook_that_names_no_kernel(tmp_path: Path) -> None:
    examined = DoctorRequest(Profile(), tmp_path, tmp_path, write(tmp_path / "a.ipynb", kernel=None))
    assert "names no kernel" in messages("fail", answers("kernel", examined))[0]
