"""The small notebooks that the scenarios send, each with one `parameters` cell."""

from __future__ import annotations

from pathlib import Path

import nbformat

TRAINING = (
    'run = "runs/x"\nseed = 0\niterations = 100\npace_s = 0.0  # sleep after each iteration\nloggers = ""',
    "import time\n\nimport marlnb as mnb\n\nprint('cell before, seed', seed)",
    "experiment = mnb.Experiment.compose(\n"
    "    'env=mpe/simple_speaker_listener', 'algorithm=mappo', 'algorithm.epochs=2', 'n_envs=4', 'rollout_steps=25',\n"
    "    'threads=1', 'checkpoint_every=20', f'frames={100 * iterations}', f'seed={seed}', f'loggers=[{loggers}]',\n"
    ")\n"
    "trained = mnb.train(\n"
    "    experiment, run, resume=True, progress=False, on_report=[lambda report: time.sleep(pace_s)]\n"
    ")",
    "metrics = trained.metrics()\nprint(len(metrics), 'iterations;', metrics['recent_return'].iloc[-1])",
)
LEAGUE = (
    'run = "runs/x"\nlearner = "main_0"\niterations = 20\npace_s = 0.0  # sleep after each iteration',
    "import time\n\nimport marlnb as mnb",
    "experiment = mnb.Experiment.compose(\n"
    "    'env=game/disc', 'league=alphastar', 'league.league_exploiter.count=0', f'league.learner={learner}',\n"
    "    'algorithm=ippo', 'algorithm.epochs=1', 'n_envs=8', 'rollout_steps=16', 'threads=1', 'checkpoint_every=5',\n"
    "    f'frames={128 * iterations}',\n"
    ")\n"
    "trained = mnb.train(\n"
    "    experiment, run, resume=True, progress=False, on_report=[lambda report: time.sleep(pace_s)]\n"
    ")",
    "print(sorted({match.learner for match in trained.league.matches()}))",
)
POPULATION = (
    'run = "runs/x"\nmember = 0\niterations = 20\npace_s = 0.0  # sleep after each iteration',
    "import time\n\nimport marlnb as mnb",
    "experiment = mnb.Experiment.compose(\n"
    "    'env=mpe/simple_spread', 'evolution=tournament', 'evolution.population=3', f'evolution.member={member}',\n"
    "    'evolution.generation_frames=320', 'evaluation_episodes=4', 'algorithm=ippo', 'algorithm.epochs=1',\n"
    "    'n_envs=8', 'rollout_steps=16', 'threads=1', 'checkpoint_every=2', f'frames={128 * iterations}',\n"
    ")\n"
    "trained = mnb.train(\n"
    "    experiment, run, resume=True, progress=False, on_report=[lambda report: time.sleep(pace_s)]\n"
    ")",
    "print(trained.population)",
)
QUICK = (
    'run = "runs/x"\nseed = 0\nseconds = 1.0\ntext = ""',
    "import time\nfrom pathlib import Path\n\ntime.sleep(seconds)\nprint(repr(text))",
    "Path(run, 'ran').write_text(text, encoding='utf-8')",
)
FAILING = (
    'run = "runs/x"\nseed = 0',
    "from pathlib import Path\n\nmended = Path(run).parents[1] / 'mended'",
    "if seed == 1 and not mended.exists():\n    raise ValueError('the second seed does not work')",
)
STATES = (
    'run = "runs/x"\nwhat = "ok"',
    "import time\n\nif what in ('long', 'slow'):\n    time.sleep(1000)\n"
    "if what == 'bad':\n    raise RuntimeError('bad')",
)
REACHING = (
    'run = "runs/x"',
    "import socket\n\n"
    "for reach in (\n"
    "    lambda: socket.create_connection(('203.0.113.7', 80), 1),\n"
    "    lambda: socket.getaddrinfo('example.org', 443),\n"
    "):\n"
    "    try:\n        reach()\n        raise AssertionError('there is a way out')\n"
    "    except OSError as error:\n        print(error)",
)
REPORT = (
    'batch = "runs/sweep"\nrun = "runs/x"',
    "import marlnb as mnb\n\ntable = mnb.Batch.open(batch).table()\nprint(sorted(set(table['state'])), len(table))",
)


def write(path: Path, cells: tuple[str, ...]) -> Path:
    """A notebook whose first cell is the `parameters` cell."""
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    made.cells[0].metadata["tags"] = ["parameters"]
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(made, path)
    return path


def executed_cells(path: Path) -> list[tuple[str, str, int | None]]:
    """Code, printed output and number of each cell but the parameters'; an error is given as text."""
    cells = [
        cell for cell in nbformat.read(path, 4).cells if "parameters" not in " ".join(cell.metadata.get("tags", []))
    ]
    return [(cell.source, "".join(_text(output) for output in cell.outputs), cell.execution_count) for cell in cells]


def _text(output: nbformat.NotebookNode) -> str:
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}"
    return str(output.get("text", output.get("data", {}).get("text/plain", "")))
