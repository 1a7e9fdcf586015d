"""What a fresh process imports before it composes, trains and opens a recording: heavy libraries only where used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SLOW = {
    *("torch._dynamo", "torch._inductor", "sympy", "tensordict", "torchrl", "functorch"),
    *("pandas", "scipy", "sklearn", "matplotlib", "seaborn", "captum", "IPython", "ipywidgets", "PIL", "papermill"),
    *("pettingzoo", "mpe2", "gymnasium", "vmas", "wandb", "tensorboard"),
}
"""What a training run of a native environment never needs."""
OVERRIDES = (
    "env=mpe/simple_spread",
    "algorithm=ippo",
    "n_envs=8",
    "frames=64",
    "rollout_steps=2",
    "evaluation_episodes=1",
)
COMPOSE = f"experiment = mnb.Experiment.compose(*{OVERRIDES})"


def modules_after(code: str, folder: Path) -> set[str]:
    """The modules that a fresh Python has imported after `code`."""
    program = f"import sys, marlnb as mnb\n{code}\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def test_composing_loads_neither_torch_nor_numpy(tmp_path: Path) -> None:
    modules = modules_after(COMPOSE, tmp_path)
    assert not modules & {*SLOW, "torch", "numpy", "h5py"}
    assert "marlnb.envs.mpe.simple_spread" in modules and "marlnb.envs.vmas.config" not in modules
    assert len(modules) < 480, len(modules)  # 370 when this was written, most of them Hydra's and Python's


def test_the_options_of_all_algorithms_and_networks_load_without_torch(tmp_path: Path) -> None:
    code = "from marlnb.config import ALGORITHMS, ENVIRONMENTS, MODELS\n"
    code += "assert len([member for kind in (ALGORITHMS, ENVIRONMENTS, MODELS) for member in kind.items()]) > 100"
    assert not modules_after(code, tmp_path) & {*SLOW, "torch"}


def test_the_first_iteration_loads_torch_and_little_else(tmp_path: Path) -> None:
    modules = modules_after(f"{COMPOSE}\nmnb.train(experiment, 'run', progress=False)", tmp_path)
    assert not modules & SLOW
    ours = {name for name in modules if name.startswith("marlnb.")}
    assert "torch" in modules and not any(name.startswith(("marlnb.analysis", "marlnb.recording")) for name in ours)
    assert len(modules - ours) < 1600, len(modules - ours)  # 1,330 when this was written, nearly all of them torch's
    assert (tmp_path / "run" / "checkpoints").is_dir()


def test_a_recording_opens_without_torch(tmp_path: Path) -> None:
    import marlnb as mnb

    experiment = mnb.Experiment.compose(*OVERRIDES)
    run = mnb.train(experiment, tmp_path / "run", progress=False)
    path = mnb.record(run, episodes=2).path
    code = (
        f"recording = mnb.Recording.open({str(path)!r})\n"
        "print(recording)\n"
        "assert recording[recording.sites[0]].to_numpy().any() and recording.experiment.frames == 64"
    )
    assert not modules_after(code, tmp_path) & {*SLOW, "torch"}


def test_torchs_threads_fall_asleep_soon_unless_the_user_says_otherwise() -> None:
    """As the OpenMP library in torch's folder reports when it is loaded."""
    load = "import ctypes, glob, importlib.util as i, os, marlnb; folder = os.path.dirname(i.find_spec('torch').origin)"
    code = f"{load}; [ctypes.CDLL(library) for library in glob.glob(folder + '/lib/libgomp*')]"
    kept = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    for variables, expected in (({}, "20000"), ({"GOMP_SPINCOUNT": "5"}, "5"), ({"OMP_WAIT_POLICY": "passive"}, "0")):
        environment = kept | {"OMP_DISPLAY_ENV": "verbose"} | variables
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert f"GOMP_SPINCOUNT = '{expected}'" in done.stderr, done.stderr
