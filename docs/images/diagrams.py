"""The diagrams of the pages that have no data of their own: `pages.py` draws and saves them."""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure

from docs.images.drawing import BLUE, GREEN, GREY, ORANGE, PINK, Box, diagram

DIAGRAMS: dict[str, Callable[[], Figure]] = {}
"""By page: its name without `.md`."""


def of_page(function: Callable[[], Figure]) -> Callable[[], Figure]:
    """Registers the diagram of the page that the function is named after."""
    DIAGRAMS[function.__name__.replace("_", "-")] = function
    return function


@of_page
def concepts() -> Figure:
    boxes = {
        "experiment": Box(0.95, 2.1, "Experiment\nwhat to run", BLUE),
        "run": Box(3.0, 2.1, "run\na folder", GREEN),
        "recording": Box(5.35, 2.1, "recording\none HDF5 file", ORANGE),
        "answers": Box(7.65, 2.1, "results\nattribution, decoding,\ninterventions, …", PINK),
        "env": Box(0.95, 0.62, "environment\nagents in groups"),
        "policy": Box(3.0, 0.62, "policies\none a group"),
        "sites": Box(5.35, 0.62, "sites\nlistener/actor/hidden_1"),
    }
    arrows = [
        ("experiment", "run", "train"),
        ("run", "recording", "record"),
        ("recording", "answers"),
        ("env", "experiment"),
        ("run", "policy", "holds"),
        ("policy", "sites", "have"),
        ("sites", "recording", "activations"),
    ]
    return diagram(boxes, arrows, width=8.9, height=2.7)


@of_page
def configuration() -> Figure:
    boxes = {
        "code": Box(1.75, 3.1, 'Python\nExperiment.compose("algorithm=mappo", …)', BLUE, 3.3),
        "shell": Box(1.75, 2.3, "command line\nmarlnb train algorithm=mappo …", BLUE, 3.3),
        "yaml": Box(1.75, 1.5, "YAML\nconf/experiment/mine.yaml", BLUE, 3.3),
        "json": Box(1.75, 0.7, "JSON\nruns/talk/experiment.json", BLUE, 3.3),
        "experiment": Box(5.15, 1.9, "Experiment\nfrozen; every value\nchecked at once", GREEN),
        "run": Box(7.7, 1.9, "run\nthe same folder,\nthe same results", ORANGE),
    }
    arrows = [*((source, "experiment") for source in ("code", "shell", "yaml", "json")), ("experiment", "run")]
    return diagram(boxes, arrows, width=8.7, height=3.6)


@of_page
def algorithms_actor_critic() -> Figure:
    reads = (
        "IDDPG, ISAC: the agent's observation and action\nMADDPG, MATD3, MASAC: all observations and actions, the state"
    )
    boxes = {
        "observation": Box(1.0, 1.85, "observation\nof one agent"),
        "actor": Box(3.2, 1.85, "actor\none for each agent,\nor shared", BLUE),
        "action": Box(5.4, 1.85, "action"),
        "buffer": Box(7.4, 1.85, "replay buffer\nthe last frames"),
        "critic": Box(5.3, 0.5, f"what a critic reads\n{reads}", ORANGE, 5.0),
    }
    arrows = [
        ("observation", "actor"),
        ("actor", "action"),
        ("action", "buffer"),
        ("buffer", "critic", "learns"),
        ("critic", "actor", "gradient"),
    ]
    return diagram(boxes, arrows, width=8.5, height=2.4)


@of_page
def algorithms_value_based() -> Figure:
    boxes = {
        "q": Box(1.2, 1.3, "Q networks\nthe value of each action\nfor each agent", BLUE),
        "iql": Box(4.6, 2.2, "IQL\neach Q learns its agent's own reward", ORANGE, 3.1),
        "vdn": Box(4.6, 1.3, "VDN\nthe sum learns the team's reward", ORANGE, 3.1),
        "qmix": Box(4.6, 0.4, "QMIX\na monotonic mixture learns it", ORANGE, 3.1),
        "state": Box(7.5, 0.4, "state\ngives the weights"),
    }
    arrows = [("q", "iql"), ("q", "vdn"), ("q", "qmix"), ("state", "qmix")]
    return diagram(boxes, arrows, width=8.5, height=2.6)


@of_page
def networks_and_sites() -> Figure:
    boxes = {
        "observation": Box(0.95, 1.75, "observation\n[agent, feature]"),
        "hidden_1": Box(3.1, 1.75, "hidden_1\n[agent, unit]", BLUE),
        "hidden_2": Box(5.1, 1.75, "hidden_2\n[agent, unit]", BLUE),
        "head": Box(7.05, 1.75, "head\n[agent, action]", BLUE),
        "record": Box(3.1, 0.55, "listener/actor/hidden_1\nrecord it, decode it", GREEN),
        "edit": Box(6.1, 0.55, "listener/actor/head\nablate, steer, patch it", ORANGE),
    }
    arrows = [
        ("observation", "hidden_1"),
        ("hidden_1", "hidden_2"),
        ("hidden_2", "head"),
        ("hidden_1", "record"),
        ("edit", "head"),
    ]
    return diagram(boxes, arrows, width=8.1, height=2.3)


@of_page
def environments_torchrl() -> Figure:
    boxes = {
        "families": Box(1.25, 0.65, "VMAS, OpenSpiel,\nMeltingPot, SMACv2,\nany EnvBase", BLUE),
        "vector": Box(4.15, 0.65, "VectorEnv\ntraining, recording,\nanalyses of marlnb", GREEN),
        "torchrl": Box(7.2, 0.65, "EnvBase\ntorchrl's collectors\nand losses", ORANGE),
    }
    arrows = [("families", "vector", "env=vmas/…"), ("vector", "torchrl", "as_torchrl")]
    return diagram(boxes, arrows, width=8.5, height=1.3)


@of_page
def environments_external() -> Figure:
    boxes = {
        "first": Box(1.35, 2.3, "simulator\nowns its loop", BLUE, 1.9),
        "second": Box(1.35, 1.45, "game server\nowns its loop", BLUE, 1.9),
        "third": Box(1.35, 0.6, "another machine\nif you allow it", BLUE, 1.9),
        "server": Box(5.0, 1.45, "external/server\na local socket", GREEN),
        "training": Box(7.6, 1.45, "training\nan algorithm\nfor each group", ORANGE),
    }
    arrows = [
        ("first", "server", "requests actions"),
        ("second", "server", "reports rewards"),
        ("third", "server", "ends episodes"),
        ("server", "training"),
        ("training", "server"),
    ]
    return diagram(boxes, arrows, width=8.6, height=2.9)


@of_page
def own_environments() -> Figure:
    boxes = {
        "yaml": Box(1.45, 2.05, "a variant\na YAML file,\nother arguments", BLUE, 1.75),
        "function": Box(3.5, 2.05, "a function\nby import path,\nPettingZoo's API", BLUE, 1.75),
        "config": Box(5.55, 2.05, "a configuration\nclass with options\nand help", BLUE, 1.75),
        "external": Box(7.6, 2.05, "a simulator\nthat owns\nits loop", BLUE, 1.75),
        "env": Box(4.5, 0.6, "marlnb train env=…\nchecked options, forms, recordings and all analyses", GREEN),
    }
    return diagram(boxes, [(name, "env") for name in list(boxes)[:4]], width=9.0, height=2.75)


@of_page
def recording_files() -> Figure:
    boxes = {
        "segments": Box(1.25, 2.2, "segments\n0000.h5, 0001.h5, …", GREY),
        "other": Box(1.25, 0.8, "other recordings\nof the same agents", GREY),
        "recording": Box(4.4, 1.5, "recording.h5\nwhole episodes", GREEN),
        "part": Box(7.6, 2.5, "part.h5\nsome episodes and sites", BLUE, 2.25),
        "more": Box(7.6, 1.5, "more sites\nin the same file", BLUE, 2.25),
        "formats": Box(7.6, 0.5, "xarray, CSV, Minari, NWB", BLUE, 2.25),
    }
    arrows = [
        ("segments", "recording", "joined"),
        ("other", "recording", "merge"),
        ("recording", "part", "extract"),
        ("recording", "more", "backfill"),
        ("recording", "formats", "export"),
    ]
    return diagram(boxes, arrows, width=8.9, height=3.0)


@of_page
def extending() -> Figure:
    boxes = {
        "yours": Box(1.35, 1.3, "your file\nan algorithm, network,\nenvironment, analysis\nor executor", BLUE),
        "registry": Box(4.0, 1.3, "registry\nname → class", GREEN),
        "command": Box(6.9, 2.3, "marlnb train, marlnb list", ORANGE, 2.6),
        "forms": Box(6.9, 1.63, "forms and help", ORANGE, 2.6),
        "files": Box(6.9, 0.97, "experiment.json, YAML", ORANGE, 2.6),
        "tests": Box(6.9, 0.3, "contract tests", ORANGE, 2.6),
    }
    arrows = [
        ("yours", "registry", "decorator"),
        *(("registry", name) for name in ("command", "forms", "files", "tests")),
    ]
    return diagram(boxes, arrows, width=8.5, height=2.6)


@of_page
def batches() -> Figure:
    jobs = [(algorithm, seed) for algorithm in ("mappo", "ippo") for seed in range(2)]
    boxes = {
        "notebook": Box(1.1, 1.5, "one notebook\nalgorithm=mappo,ippo\nseed=0..1", BLUE),
        **{
            f"job{k}": Box(4.3, 2.63 - 0.75 * k, f"job\n{algorithm}, seed {seed}", GREEN, 1.8)
            for k, (algorithm, seed) in enumerate(jobs)
        },
        "compare": Box(7.4, 1.5, "comparison\ncurves and scores\nwith intervals", ORANGE),
    }
    arrows = [pair for k in range(len(jobs)) for pair in (("notebook", f"job{k}"), (f"job{k}", "compare"))]
    return diagram(boxes, arrows, width=8.5, height=3.0)


@of_page
def profiles() -> Figure:
    boxes = {
        "profile": Box(1.35, 0.7, "profile: mine.yaml\nexecutor: slurm\ncores: 4\npartition: gpu", BLUE),
        "set": Box(1.35, 1.75, "--set time_limit=02:00:00"),
        "script": Box(4.9, 1.1, "script.sbatch\n#SBATCH --cpus-per-task=4\n#SBATCH --partition=gpu\n…", GREEN),
        "jobs": Box(7.9, 1.1, "jobs\non the nodes", ORANGE),
    }
    arrows = [("profile", "script", "--on mine"), ("set", "script"), ("script", "jobs")]
    return diagram(boxes, arrows, width=8.8, height=2.15)


@of_page
def when_a_job_dies() -> Figure:
    boxes = {
        "queued": Box(0.95, 1.6, "queued"),
        "running": Box(3.1, 1.6, "running\ncheckpoints", BLUE),
        "complete": Box(6.9, 2.75, "complete\nevery cell ran", GREEN, 2.3),
        "interrupted": Box(6.9, 1.98, "interrupted\nsignal, time limit, kill", ORANGE, 2.3),
        "stopped": Box(6.9, 1.2, "stopped\nyou asked for it", GREY, 2.3),
        "failed": Box(6.9, 0.42, "failed\na cell raised an error", PINK, 2.3),
    }
    arrows = [
        ("queued", "running"),
        ("running", "complete"),
        ("running", "interrupted"),
        ("interrupted", "running", "resumes"),
        ("running", "stopped"),
        ("running", "failed"),
    ]
    return diagram(boxes, arrows, width=8.4, height=3.2)


@of_page
def jupyterhub() -> Figure:
    boxes = {
        "browser": Box(0.95, 1.7, "browser"),
        "hub": Box(3.3, 1.7, "JupyterLab\nthe hub's Python", BLUE),
        "kernel": Box(6.4, 1.7, "kernel\nyour Python with marlnb", GREEN),
        "runs": Box(6.4, 0.5, "runs/\nonly you can read them", ORANGE),
        "slurm": Box(3.3, 0.5, "SLURM job\nends at its time limit"),
    }
    arrows = [
        ("browser", "hub"),
        ("hub", "kernel", "hub install"),
        ("kernel", "runs", "saved in time"),
        ("slurm", "hub"),
    ]
    return diagram(boxes, arrows, width=7.9, height=2.2)


@of_page
def cluster_on_a_laptop() -> Figure:
    boxes = {
        "login": Box(1.5, 1.3, "login node\nyour machine:\nslurmctld, sbatch", BLUE),
        "node": Box(5.0, 1.3, "compute node cn1\na network namespace:\nslurmd, your jobs", GREEN),
        "internet": Box(7.9, 1.3, "internet\na black hole;\npackets are logged", PINK),
        "files": Box(3.3, 0.3, "the same files"),
    }
    arrows = [("login", "node", "one link"), ("node", "internet"), ("login", "files"), ("node", "files")]
    return diagram(boxes, arrows, width=9.0, height=1.95)


@of_page
def by_hand() -> Figure:
    boxes = {
        "step": Box(1.1, 1.7, "step\nevery environment", BLUE),
        "act": Box(3.6, 1.7, "act\na policy for each group", GREEN),
        "store": Box(6.2, 1.7, "store\nrollout or replay", GREY),
        "update": Box(6.2, 0.5, "update\nloss and optimizer", ORANGE),
        "yours": Box(3.6, 0.5, "your policy\nrecord, decode, edit", PINK),
    }
    arrows = [
        ("step", "act"),
        ("act", "step", "actions"),
        ("act", "store"),
        ("store", "update"),
        ("update", "yours"),
        ("yours", "act"),
    ]
    return diagram(boxes, arrows, width=7.6, height=2.2)


@of_page
def install() -> Figure:
    boxes = {
        "wheel": Box(1.2, 1.8, "one package\nwheel, git URL\nor checkout", BLUE),
        "uv": Box(4.7, 3.25, "your machine\nmake, uv or pip", GREEN, 2.4),
        "container": Box(4.7, 2.5, "container\nDocker, Apptainer", GREEN, 2.4),
        "colab": Box(4.7, 1.75, "Colab, Kaggle\npip in a cell", GREEN, 2.4),
        "conda": Box(4.7, 1.0, "conda on a hub\nand a kernel", GREEN, 2.4),
        "cluster": Box(4.7, 0.3, "cluster nodes", GREEN, 2.4),
        "runs": Box(8.0, 1.8, "the same commands\nand the same runs", ORANGE),
    }
    places = ("uv", "container", "colab", "conda", "cluster")
    return diagram(boxes, [p for n in places for p in (("wheel", n), (n, "runs"))], width=9.3, height=3.65)


@of_page
def leagues() -> Figure:
    boxes = {
        "main_exploiter": Box(1.35, 3.2, "main exploiter\nreset after a snapshot", ORANGE, 2.3),
        "main": Box(1.35, 1.85, "main agent\n35% against itself", BLUE, 2.3),
        "league_exploiter": Box(1.35, 0.5, "league exploiters\nreset in 25% of cases", PINK, 2.3),
        "mains": Box(6.75, 3.2, "snapshots of main agents", GREEN, 3.3),
        "forgotten": Box(6.75, 1.85, "snapshots that beat it\nof mains and main exploiters", GREEN, 3.3),
        "past": Box(6.75, 0.5, "all snapshots", GREEN, 3.3),
    }
    arrows = [
        ("main_exploiter", "mains", "50%, and all if it loses, f_var"),
        ("main_exploiter", "main", "50%"),
        ("main", "forgotten", "15%, PFSP"),
        ("main", "past", "50%, PFSP"),
        ("league_exploiter", "past", "100%, PFSP"),
    ]
    return diagram(boxes, arrows, width=8.6, height=3.7)
