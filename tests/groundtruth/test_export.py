"""What another tool gets, and how its submission is scored."""

import json
import math

import numpy as np
import pytest

from marlnb.errors import AnalysisError, ConfigError
from marlnb.groundtruth.__main__ import main
from marlnb.groundtruth.benchmark import Benchmark
from marlnb.groundtruth.export import export, load_keys, score_submission

CIRCUIT = "role_switch"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "instances"
    return folder, export(folder, [5], circuits=[CIRCUIT], episodes=4)


def submission(key, **more):
    node = next(node for node in key.nodes if node.readout)
    claims = [
        {"kind": "agents", "agents": list(key.agents)},
        {"kind": "units", "agent": node.agent, "site": node.site, "units": list(node.units)},
    ]
    planted_instance = {"circuit": key.name, "network": key.network, "shared": key.shared, "seed": key.seed}
    return {"analysis": "by key", **planted_instance, "attempts": ["agents", "units"], "claims": claims, **more}


def test_the_exported_weights_and_formulas_give_the_recorded_activations(exported):
    _, made = exported
    subject = next(s for s in made if s.key.network == "gru" and s.key.shared)
    w = np.load(subject.agents.path / "weights-agent.npz")
    first, step, state, head = (
        next((w[n], w[n.replace("weight", "bias")]) for n in w.files if n.endswith(f"{name}.weight"))
        for name in ("hidden.0.linear", "gru.input", "gru.state", "head")
    )
    with subject.record(4) as recording:
        rows = recording.rows.query("episode == 2").index
        seen = recording.steps("agent", "observation").to_numpy()[rows].astype(float)
        logits = recording.steps("agent", "logits").to_numpy()[rows]
    s = np.zeros((3, len(head[0][0])))
    for o, expected in zip(seen, logits):
        h = np.maximum(np.hstack([o, np.eye(3)]) @ first[0].T + first[1], 0)
        (r, u, c), (sr, su, sc) = (np.split(x, 3, -1) for x in (h @ step[0].T + step[1], s @ state[0].T + state[1]))
        c = np.tanh(c + sc / (1 + np.exp(-r - sr)))
        s = c + (s - c) / (1 + np.exp(-u - su))
        np.testing.assert_allclose(s @ head[0].T + head[1], expected, atol=1e-4)


def test_a_submission_is_scored_and_its_mistakes_are_reported(exported, tmp_path, capsys):
    folder, made = exported
    keys = load_keys(folder.with_name("instances.keys.json"))
    assert keys == [subject.key for subject in made]
    findings = [submission(key) for key in keys if key.network == "gru"]
    result = score_submission(findings, folder)
    assert [s.recovered for s in result.scores] == pytest.approx([1.0, 1.0], abs=2e-3)
    assert all(s.decoys_claimed == 0 for s in result.scores)
    file = tmp_path / "submission.json"
    file.write_text(json.dumps(findings))
    main(["score", str(file), "--path", str(folder), "--json", str(tmp_path / "scores.json")])
    main(["join", str(tmp_path / "scores.json")])
    assert "100.0% | 0/" in capsys.readouterr().out
    with pytest.raises(AnalysisError, match="seed"):
        score_submission([{k: v for k, v in findings[0].items() if k != "seed"}], folder)
    with pytest.raises(AnalysisError, match="decoy-gru-shared-5"):
        score_submission([{**findings[0], "circuit": "decoy"}], folder)
    with pytest.raises(AnalysisError, match=r"benchmark\.json"):
        score_submission(findings, tmp_path)
    with pytest.raises(AnalysisError, match="'lstm'"):
        score_submission([{**findings[0], "network": "lstm"}], folder)
    assert "logits of the same step: not measured" in repr(result)
    parts = [result.to_json(), json.loads((tmp_path / "scores.json").read_text())]
    repeated = "for each analysis and instance, got 2 for by key of role_switch-gru-shared-5"
    with pytest.raises(AnalysisError, match=f"one score {repeated}"):
        Benchmark.join(parts)
    with pytest.raises(AnalysisError, match=f"one finding {repeated}"):
        score_submission([*findings, findings[0]], folder)
    with pytest.raises(AnalysisError, match="with 4 episodes, requested 5"):
        export(folder, [5], circuits=[CIRCUIT], episodes=5)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"site": "agent/actor/hidden2"}, "no site 'agent/actor/hidden2' of agent_"),
        ({"agent": "agent_7"}, "'agent_7'"),
        ({"units": [32]}, "the units 0 to 31, got 32"),
        ({"units": 3}, "malformed"),
        ({"kind": "subspace", "units": None, "basis": [[1, 0]]}, "expected 32 finite numbers"),
        ({"kind": "subspace", "units": None, "basis": []}, "at least one direction"),
        ({"kind": "effect", "units": None, "direction": [1] * 32, "output": 9, "value": 1}, "outputs 0 to"),
        ({"kind": "complete", "units": None, "value": 1.0}, "'complete' are measured"),
        ({"site": ""}, "no site '' of agent_"),
        ({"kind": "effect", "units": None, "direction": [1] * 32, "output": 0, "value": "1"}, "finite value, got '1'"),
        ({"kind": "subspace", "units": None, "basis": [["1"] * 32]}, "expected a finite number .*, got '1'"),
        ({"kind": "subspace", "units": None, "basis": [[math.nan] * 32]}, "expected a finite number .*, got nan"),
        ({"kind": "features", "units": None, "basis": [[1] * 32, [0] * 32]}, "each feature by itself"),
    ],
)
def test_a_claim_that_does_not_fit_the_instance_is_an_error(exported, changes, problem):
    folder, made = exported
    data = submission(made[0].key)
    claim = {name: value for name, value in {**data["claims"][1], **changes}.items() if value is not None}
    with pytest.raises(AnalysisError, match=problem):
        score_submission([{**data, "attempts": [claim["kind"]], "claims": [claim]}], folder)


def test_the_key_is_the_exported_one(tmp_path):
    (subject, *_) = export(tmp_path / "instances", [6], circuits=[CIRCUIT], episodes=2)
    task = subject.agents.path / "task.json"
    task.write_text(task.read_text().replace(subject.task.key_sha256, "0" * 64))
    with pytest.raises(AnalysisError, match=r"instances\.keys\.json has keys of 4 other instances"):
        export(tmp_path / "instances", [7], circuits=[CIRCUIT], episodes=2)
    assert len(load_keys(tmp_path / "instances.keys.json")) == 4
    with pytest.raises(AnalysisError, match="hash of another key"):
        score_submission([submission(subject.key)], tmp_path / "instances")


def test_an_export_to_the_working_directory_has_its_keys_in_the_folder_above(tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    made = export(".", iter([6]), circuits=iter([CIRCUIT]), episodes=1)
    assert len(made) == 4
    keys = tmp_path / "work.keys.json"
    assert load_keys(keys) == [subject.key for subject in made] and not list((tmp_path / "work").glob("*keys*"))
    for text in ("[{", "[{}]", "3"):
        keys.write_text(text)
        with pytest.raises(AnalysisError, match=r"work\.keys\.json is (not JSON|damaged)"):
            export(".", [6], circuits=[CIRCUIT], episodes=1)
    (tmp_path / "work" / "benchmark.json").write_text("{}")
    with pytest.raises(AnalysisError, match=r"benchmark\.json is damaged: expected the field 'episodes'"):
        score_submission([], ".")


def test_an_export_of_no_episodes_leaves_nothing(tmp_path):
    with pytest.raises(ConfigError, match="episodes must be at least 1; got 0"):
        export(tmp_path / "work", [6], circuits=[CIRCUIT], episodes=0)
    assert not list(tmp_path.iterdir())


def test_a_bad_request_is_one_line(tmp_path, capsys):
    bad = tmp_path / "bad.json"
    bad.write_text("[")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "part.json").write_text('{"scores": [{}], "spillover": 0, "seconds": {}}')
    (tmp_path / "spent.json").write_text('{"scores": [], "spillover": 0, "seconds": []}')
    for arguments, problem in (
        (["export"], "export expects one folder; got 0"),
        (["join"], "join expects one or more files; got 0"),
        (["score", str(tmp_path / "missing.json")], "No such file"),
        (["score", str(bad)], "bad.json is not JSON"),
        (["join", str(tmp_path / "list.json")], "expected what --json wrote"),
        (["join", str(tmp_path / "part.json")], "expected what --json wrote, got a damaged part: KeyError('analysis')"),
        (["join", str(tmp_path / "spent.json")], "expected what --json wrote, got a damaged part: AttributeError"),
        (["--analyses", "abblate", "--path", str(tmp_path)], "'abblate'"),
        (["--circuits", "decoi", "--path", str(tmp_path)], "'decoi'"),
    ):
        assert main(arguments) == 2
        output = capsys.readouterr().err
        assert problem in output and output.count("\n") == 1
