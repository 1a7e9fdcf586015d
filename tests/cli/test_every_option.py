"""Each documented option of each command is given once, and the command does what it should: no option is dead."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from marlnb.batch.batch import Batch
from marlnb.batch.job.job import JobStatus
from marlnb.cli import COMMANDS, main, parser_of
from marlnb.cli.setup import lab
from marlnb.models.hooks.edits import Ablate
from marlnb.training.runs.saved_edits import save_edits
from tests.batch import test_submit
from tests.batch.test_benchmark import BENCHMARL

noting = test_submit.noting

TINY = (
    "n_envs=2 rollout_steps=5 threads=1 algorithm.epochs=1 model.hidden=[4] frames=20 evaluation_episodes=1 "
    "env.max_cycles=5"
)
RECORDING = "{run}/recordings/a.h5"
ATTRIBUTE = f"attribute {RECORDING} --group agent"
PLAN = f"""
algorithms: [ippo]
environments: {{{{mpe/simple_spread: [env.max_cycles=5]}}}}
seeds: 1
overrides: {json.dumps(TINY.split())}
compare: ["{{theirs}}"]
"""
# exit code 0, unless the line starts with another one
LINES = f"""
train env=mpe/simple_spread algorithm=ippo {TINY} run={{run}} --quiet --config-dir {{conf}} --record \
every_iterations=1,episodes=1
train env=mpe/simple_spread algorithm=ippo {TINY} run={{run}} --resume --quiet
train env=mpe/simple_spread algorithm=ippo {TINY} seed=0,1 --jobs 1 --dry-run
resume {{run}} --frames 30 --max-iterations 3 --max-minutes 9 --max-agent-steps 90 --device cpu --trust --quiet
resume {{run}} --record every_iterations=1,episodes=1,name=other
evaluate {{run}} --episodes 2 --seed 5 --policy run --checkpoint last --explore --n-envs 1 --ablate \
agent/actor/hidden_1:0 --json
evaluate {{run}} --episodes 1 --env mpe/simple_spread env.max_cycles=5 --config-dir {{conf}} --edits deaf --trust
record {{run}} --sites '*/actor/*' --dtype float16 --no-values --name plan --episodes 1 --seed 3 --explore \
--every 2 --plan
record {{run}} --name a --episodes 2 --agents agent_0 agent_1 agent_2 --n-envs 1 --checkpoint last --frames \
2 --fill captured --device cpu --trust --quiet
record {{run}} --name b --episodes 1 --env mpe/simple_spread env.max_cycles=5 --config-dir {{conf}} \
--segment-bytes 100000 --quiet
info {{run}} --json
runs {{run}} --json
runs {{run}}
info {RECORDING}
list sites {{run}} --trust --json
list envs --config-dir {{conf}}
gallery --json
2 gallery make nothing --out {{tmp}}/made
2 gallery add {{run}} --name mine
{ATTRIBUTE} --agent agent_0 --to action --method shapley_value_sampling --n-samples 2 --features auto \
--baseline mean --given action --rows 't < 3' --sources own --episodes 0 --checkpoint 3 --batch-size 8 \
--seed 1 --out {{tmp}}/a --trust
{ATTRIBUTE} --to unit --target agent/actor/hidden_1 0 --method gradient_shap --n-baselines 2 --smooth 2 \
--noise 0.1 --steps 0 1 --out {{tmp}}/b
{ATTRIBUTE} --method conductance --site agent/actor/hidden_1 --n-steps 2 --out {{tmp}}/c
backfill {RECORDING} --sites 'agent/critic/*' --trust
export {RECORDING} --to csv --out {{tmp}}/rows.csv --episodes 0:1 --sites 'agent/*' --fields observation
export {RECORDING} --to minari --out {{tmp}}/datasets --name a-v0
extract {RECORDING} --out {{tmp}}/part.h5 --agents agent_0 --every 2 --episodes 0:1 --sites 'agent/actor/*' \
--fields observation action
merge {{tmp}}/part.h5 --out {{tmp}}/merged.h5
repair {{tmp}}/part.h5 --keep
2 stop {{run}}
benchmark {{plan}} --out {{tmp}}/bench --jobs 1 --compare {{theirs}} --no-report --quiet --json
benchmark {{tmp}}/bench --compare {{theirs}} --trust --dry-run
benchmark --algorithms ippo --envs mpe/simple_spread --seeds 1 --config-dir {{conf}} --dry-run {TINY}
batch a.ipynb --parameters --json
batch a.ipynb --parameter n=0..1 --parameters-file {{yaml}} --on noting --set cores=1 --out {{tmp}}/batch \
--detach --yes
batch a.ipynb -p n=0..1 --out {{tmp}}/batch --only n=0 --no-retry --update-notebook --dry-run
batch a.ipynb -p n=5 --on noting --force --quiet --wait --then compare --out {{tmp}}/waited --dry-run
jobs {{tmp}}/batch --log n=0 --lines 3
jobs {{tmp}}/batch --watch --json
watch {{tmp}}/batch --no-resubmit --once --poll 0.1 --quiet --json
cancel {{tmp}}/batch n=0 --json
sync {{tmp}} --dry-run --json
doctor --batch {{tmp}}/batch --json
doctor --run {{run}}
doctor a.ipynb --parameter n=1 --on noting --set cores=1 --out {{tmp}}/doctored --on-node
hub install --name x --display-name X --module m --env A=b --prefix {{tmp}}/hub
hub status --name x --prefix {{tmp}}/hub --json
hub uninstall --name x --prefix {{tmp}}/hub --force
2 hub uninstall --user --name none
profiles noting --json
lab {{tmp}} --start a.ipynb --port 9000 --ip 127.0.0.1 --no-browser
"""


def _lines() -> list[tuple[int, str]]:
    lines = [line for line in LINES.splitlines() if line]
    return [(int(line[0]), line[2:]) if line[0].isdigit() else (0, line) for line in lines]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_option_is_left_out(command: str) -> None:
    given = {word for _, line in _lines() for word in shlex.split(line) if shlex.split(line)[0] == command}
    for action in parser_of(command)._actions:
        if action.dest != "help" and action.option_strings:
            assert given & set(action.option_strings), f"no line above gives {action.option_strings} of {command}"


def test_every_option(
    noting: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {name: tmp_path / name for name in ("run", "conf", "plan", "theirs", "yaml")}
    (tmp_path / "conf").mkdir()
    (tmp_path / "yaml").write_text("n: [0, 1]\n")
    places["yaml"] = (tmp_path / "yaml").rename(tmp_path / "values.yaml")
    places["plan"], places["theirs"] = tmp_path / "plan.yaml", BENCHMARL
    places["plan"].write_text(PLAN.format(theirs=BENCHMARL))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setattr(lab.os, "execve", lambda *words: None)
    for code, line in _lines():
        if line.startswith("jobs") and "--watch" in line:
            for job in Batch.open(tmp_path / "batch").jobs():
                job.write_status(JobStatus("complete"))
        words = shlex.split(line.format(tmp=tmp_path, **places))
        assert (main(words) or 0) == code, f"{line}\n{capsys.readouterr().err}"
        if not (places["run"] / "edits").exists():
            save_edits(places["run"], "deaf", Ablate("agent/actor/hidden_1"))
    compared = json.loads((tmp_path / "bench" / "benchmark.json").read_text())["compare"]
    assert [runs["path"] for runs in compared] == [str(BENCHMARL)]  # given twice: in the plan and as an option
    assert not re.search("Traceback", capsys.readouterr().err) and os.getcwd() == str(tmp_path)
