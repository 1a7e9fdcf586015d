"""What is recorded: the steps taken, the requested agents, nothing else; hooks are removed afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from marlnb.config import ENVIRONMENTS
from marlnb.envs.mpe.rules import MPERules
from marlnb.envs.mpe.simple_spread import SimpleSpreadConfig
from marlnb.errors import ConfigError, EnvError, RecordingError, SiteError
from marlnb.models.hooks.edits import Scale
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.models.networks.configs.recurrent import GRUConfig
from marlnb.recording.capture.config import RecordingConfig
from marlnb.recording.capture.plan import plan_recording
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from marlnb.recording.tools.extract import extract
from marlnb.training.collect.episodes import TimeStep
from marlnb.training.runs.run import Run
from tests.recording.runs import Lives, LivesConfig, length_of, make_run


@pytest.fixture
def lives(tmp_path: Path) -> Run:
    return make_run(tmp_path / "run", LivesConfig(), centralised=False)


def check_lives(recording: Recording, numbers: list[int], seed: int, every: int = 1) -> None:
    """Everything that toy/lives says about its episodes, written out."""
    assert recording.episodes.index.tolist() == numbers
    for number in numbers:
        episode, own = recording.episodes.loc[number], seed + number
        t = np.arange(0, length_of(own), every)
        assert (episode["n_steps"], episode["length"], episode["seed"]) == (length_of(own), len(t), own)
        rows = recording.rows.iloc[episode["start"] : episode["start"] + episode["length"]]
        assert rows["t"].tolist() == t.tolist() and set(rows["episode"]) == {number}
        observation = recording.steps("a", "observation").sel(episode=number).to_numpy()
        alive = np.stack([t >= 0, t < 3, t >= 0], axis=1)
        expected = np.stack(np.broadcast_arrays(own, t[:, None], np.arange(3)), axis=-1) * alive[..., None] / 10
        np.testing.assert_allclose(observation, expected, rtol=1e-6)
        assert np.array_equal(recording.steps("a", "alive").sel(episode=number), alive)
        assert np.array_equal(recording.steps("b", "acting").sel(episode=number), (t % 2 == 0)[:, None])
        reward = (t[:, None] + np.arange(3)) * alive
        assert np.array_equal(recording.steps("a", "reward").sel(episode=number), reward)
        terminated = recording.steps("a", "terminated").sel(episode=number).to_numpy()
        assert np.array_equal(terminated, np.stack([t < 0, t == 2, t < 0], axis=1))
        truncated = recording.steps("a", "truncated").sel(episode=number).to_numpy()
        ends = t == length_of(own) - 1
        assert np.array_equal(truncated, np.stack([ends, ends & (t < 2), ends], axis=1))
        assert np.array_equal(recording.state.sel(episode=number), np.stack([np.full(len(t), own), t], axis=1))
        assert np.array_equal(recording.label("odd").sel(episode=number), t % 2)
        assert np.array_equal(recording.label("height").sel(episode=number), 10 * t[:, None] + np.arange(3))
        choices = (np.arange(3)[:, None] + np.arange(4)) % 4 != t[:, None, None] % 4
        assert np.array_equal(recording.steps("a", "action_mask").sel(episode=number), choices)
        every_t = np.arange(length_of(own))
        returns = [every_t.sum(), (every_t[:3] + 1).sum(), (every_t + 2).sum(), every_t.sum()]
        assert episode[["a_0", "a_1", "a_2", "b_0"]].tolist() == returns


@pytest.mark.parametrize(("episodes", "n_envs"), [(11, 4), (5, 1), (3, 3)])
def test_rows_of_episodes_of_any_length_are_adjacent(lives: Run, episodes: int, n_envs: int) -> None:
    with record(lives, episodes=episodes, n_envs=n_envs, seed=40, progress=False) as recording:
        check_lives(recording, list(range(episodes)), 40)
        assert recording.complete and len(recording) == sum(length_of(40 + k) for k in range(episodes))


def test_slices_count_among_what_was_selected_before(lives: Run) -> None:
    with record(lives, episodes=5, n_envs=2, seed=40, sites=[], progress=False) as recording:
        array, rows = recording.steps("a", "observation"), recording.rows
        whole, t, episode = array.to_numpy(), rows["t"].to_numpy(), rows["episode"].to_numpy()
        assert np.array_equal(array.sel(feature=slice(None, None, 2)), whole[..., ::2])
        assert np.array_equal(array.sel(agent=slice(1, None)).sel(agent=slice(None, None, -1)), whole[:, :0:-1])
        assert np.array_equal(array.sel(t=slice(2, None)), whole[t >= 2])
        last = recording.episodes["n_steps"].to_numpy()[episode] - 1
        assert len(set(last)) > 1 and np.array_equal(array.sel(t=slice(-2, None)), whole[t >= last - 1])
        assert np.array_equal(array.sel(t=slice(0, 3)).sel(t=slice(-1, None)), whole[t == 2])
        first_steps = array.sel(t=[0, 1]).sel(episode=[3, 1]).to_numpy()
        assert np.array_equal(first_steps, np.concatenate([whole[(episode == k) & (t < 2)] for k in (3, 1)]))


@pytest.mark.parametrize("with_callback", [False, True])
@pytest.mark.parametrize("every", [2, 3, 50])
def test_every_kth_step(lives: Run, every: int, with_callback: bool) -> None:
    """With and without a callback at every step."""
    reports: list[int] = []
    on_step = (lambda progress: reports.append(progress.episodes)) if with_callback else None
    with record(lives, episodes=9, n_envs=4, seed=5, every=every, progress=False, on_step=on_step) as recording:
        steps = max(sum(length_of(5 + k) for k in range(env_index, 9, 4)) for env_index in range(4))
        assert len(reports) == (steps if with_callback else 0)
        check_lives(recording, list(range(9)), 5, every)


def test_an_episode_longer_than_the_buffers(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", LivesConfig(shortest=290), centralised=False)
    for n_envs in (1, 2):
        name = f"envs{n_envs}"
        with record(
            run, episodes=3, n_envs=n_envs, seed=1, sites="a/actor/hidden_1", name=name, progress=False
        ) as recording:
            assert recording.episodes["length"].tolist() == [length_of(1 + k, 290) for k in range(3)]
            for number in range(3):
                t = recording.rows["t"][recording.rows["episode"] == number]
                assert t.tolist() == list(range(length_of(1 + number, 290)))
                seen = recording.steps("a", "observation").sel(episode=number, agent="a_2", feature="t").to_numpy()
                np.testing.assert_allclose(seen, np.arange(len(t)) / 10, rtol=1e-6)


def test_a_single_env_whose_streamed_episodes_end_off_the_stride(tmp_path: Path) -> None:
    """With every=2, 128 rows are streamed at t=254; an episode of 256 steps has no row after them."""
    run = make_run(tmp_path / "run", LivesConfig(shortest=252), centralised=False)
    with record(run, episodes=7, n_envs=1, every=2, sites=[], seed=0, progress=False) as recording:
        assert recording.episodes["n_steps"].tolist() == [length_of(k, 252) for k in range(7)]
        assert recording.episodes["length"].tolist() == [126, 127, 127, 128, 128, 129, 129]
        assert recording.episodes["length"].tolist() == recording.rows.groupby("episode").size().tolist()
        assert recording.episodes["finished"].all()


def test_chosen_agents(lives: Run) -> None:
    with (
        record(lives, episodes=5, n_envs=2, seed=9, name="all", progress=False) as all_agents,
        record(lives, episodes=5, n_envs=2, seed=9, agents=["a_0", "a_2"], name="two", progress=False) as part,
    ):
        assert part.agents == ["a_0", "a_2"] and part.groups == ["a"]
        assert [site.split("/")[0] for site in part.sites] == ["a"] * 3
        for field in all_agents.fields("a"):
            assert np.array_equal(all_agents.steps("a", field).to_numpy()[:, [0, 2]], part.steps("a", field)), field
        for site in part.sites:
            assert np.array_equal(all_agents[site].sel(agent=["a_0", "a_2"]), part[site])
        assert np.array_equal(all_agents.label("height").to_numpy()[:, [0, 2]], part.label("height"))
        assert part.episodes["a_2"].tolist() == all_agents.episodes["a_2"].tolist()


def test_a_centralised_critic_sees_agents_that_are_not_recorded(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", LivesConfig(), centralised=True)
    with (
        record(run, episodes=4, n_envs=2, name="all", progress=False) as all_agents,
        record(run, episodes=4, n_envs=2, agents="a_1", name="one", progress=False) as part,
    ):
        np.testing.assert_allclose(
            part.steps("a", "value"), all_agents.steps("a", "value").to_numpy()[:, 1:2], rtol=1e-5
        )


def test_labels_of_the_users(lives: Run) -> None:
    labels = {
        "late": lambda time_step: time_step.t > 2,
        "b/first": lambda time_step: time_step.observation["b"][..., 0],
        "sum": lambda time_step: time_step.observation["a"].sum(-1),
    }
    with record(lives, episodes=3, labels=labels, progress=False) as recording:
        assert np.array_equal(recording.label("late"), recording.rows["t"] > 2)
        assert recording.label("late").dtype == bool
        assert np.array_equal(recording.label("b/first"), recording.steps("b", "observation").to_numpy()[..., 0])
        total = recording.steps("a", "observation").to_numpy().sum(-1)
        np.testing.assert_allclose(recording.label("sum").sel(agent="a_2"), total[:, 2], rtol=1e-6)


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ({"odd": lambda time_step: time_step.t}, "already"),
        ({"x": lambda time_step: 3}, r"tensor \[env\]"),
        ({"x": lambda time_step: torch.zeros(time_step.env.n_envs, 2)}, "<group>/x"),
        ({"x": lambda time_step: time_step.t, "x/late": lambda time_step: time_step.t}, "'x' and 'x/late' cannot"),
    ],
)
def test_labels_that_cannot_be_recorded(lives: Run, label: dict[str, object], message: str) -> None:
    with pytest.raises(RecordingError, match=message):
        record(lives, episodes=3, labels=label, progress=False)  # type: ignore[arg-type]
    assert lives.recordings == {}


def test_a_label_that_is_not_the_index_of_a_class_is_an_error(
    lives: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of environments whose labels are computed at each step, and for many steps at once."""
    labels, labels_of = Lives.labels, MPERules.labels_of
    monkeypatch.setattr(Lives, "labels", lambda env: labels(env) | {"odd": 1 + labels(env)["odd"]})
    with pytest.raises(EnvError, match=r"label 'odd' is 2; valid: 0 to 1, the index of one of \['even', 'odd'\]"):
        record(lives, episodes=3, progress=False)

    def shifted(rules: MPERules, states: torch.Tensor) -> dict[str, torch.Tensor]:
        return {name: value - 1 for name, value in labels_of(rules, states).items()}

    spread = make_run(tmp_path / "spread", SimpleSpreadConfig(), centralised=False)
    monkeypatch.setattr(MPERules, "labels_of", shifted)
    with pytest.raises(EnvError, match=r"label '\w+' is -1; valid: 0 to "):
        record(spread, episodes=2, progress=False)


def test_a_config_with_labels_records_runs_of_other_sizes(tmp_path: Path) -> None:
    config = RecordingConfig(episodes=2, labels={"first": lambda time_step: time_step.observation["agent"][..., 0]})
    for n_agents in (2, 3):
        run = make_run(tmp_path / str(n_agents), SimpleSpreadConfig(N=n_agents))
        assert plan_recording(run, config).rows
        with record(run, config, progress=False) as recording:
            assert recording.label("first").shape[1] == n_agents


def test_no_agents_are_an_error(lives: Run, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="at least one agent; valid: a_0, a_1, a_2, b_0"):
        record(lives, episodes=2, agents=[], sites=[], progress=False)
    with record(lives, episodes=2, progress=False) as recording:
        with pytest.raises(RecordingError, match="at least one agent; valid: a_0"):
            extract(recording, tmp_path / "part.h5", agents=[])


def test_a_label_that_raises_is_named(lives: Run) -> None:
    with pytest.raises(RecordingError, match="label 'goal' raised KeyError: 'c'") as caught:
        record(lives, episodes=3, labels={"goal": lambda time_step: time_step.observation["c"]}, progress=False)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(ConfigError, match=r"labels\.goal must be a function; got 3"):
        record(lives, episodes=3, labels={"goal": 3}, progress=False)  # type: ignore[dict-item]
    with pytest.raises(RecordingError, match=r"label 'goal' has dtype complex64; valid: bool, .*float64"):
        record(lives, episodes=3, labels={"goal": lambda time_step: time_step.t + 1j}, progress=False)
    assert lives.recordings == {}


class _Late:
    """Returns `answer`'s results from its 21st call on; by then episodes have been written."""

    def __init__(self, answer: Callable[[TimeStep], Any]) -> None:
        self.answer, self.calls = answer, 0

    def __call__(self, time_step: TimeStep) -> Any:
        self.calls += 1
        return self.answer(time_step) if self.calls > 20 else time_step.t


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda time_step: 1 / 0, "label 'x' raised ZeroDivisionError"),
        (lambda time_step: time_step.t[:1], r"label 'x' is now int64 of shape \(1,\); expected int64 of shape \(2,\)"),
        (lambda time_step: time_step.t / 2, r"label 'x' is now float32 of shape \(2,\); expected int64"),
        (lambda time_step: None, "label 'x' returned a tensor at first; now it returned None"),
    ],
)
def test_a_label_that_goes_wrong_later_loses_no_episode(
    lives: Run, answer: Callable[[TimeStep], Any], message: str
) -> None:
    with pytest.raises(RecordingError, match=message):
        record(lives, episodes=400, n_envs=2, name="broken", labels={"x": _Late(answer)}, progress=False)
    with Recording(lives.recordings["broken"]) as recording:
        assert not recording.complete and len(recording.episodes) >= 2
        assert np.array_equal(recording.label("x"), recording.rows["t"])


def test_frames(lives: Run) -> None:
    with record(lives, episodes=7, n_envs=3, seed=30, every=2, frames=2, progress=False) as recording:
        for number in range(7):
            for t in range(0, length_of(30 + number), 4):
                image = recording.frame(episode=number, t=t)
                assert image.shape == (4, 6, 3) and image[0, 0].tolist() == [30 + number, t, 0]
        with pytest.raises(RecordingError, match="no frame was recorded"):
            recording.frame(episode=0, t=2)
        stored = recording.file["frames/image"]
        assert stored.compression == "gzip" and len(stored) == sum(-(-length_of(30 + k) // 4) for k in range(7))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("model", [MLPConfig(), GRUConfig()], ids=["mlp", "gru"])
def test_half_precision(tmp_path: Path, dtype: str, model: MLPConfig) -> None:
    run = make_run(tmp_path / "run", LivesConfig(), model)
    with (
        record(run, episodes=6, n_envs=3, name="full", progress=False) as full,
        record(run, episodes=6, n_envs=3, dtype=dtype, name="half", progress=False) as half,
    ):
        arrays = [(full[site], half[site]) for site in full.sites]
        if isinstance(model, GRUConfig):
            arrays += [(full.recurrent(group), half.recurrent(group)) for group in full.groups]
        for exact, rounded in arrays:
            expected = exact.to_torch().to(getattr(torch, dtype))
            assert torch.equal(rounded.to_torch(keep_dtype=True), expected)
            assert rounded.dtype == np.float32 and torch.equal(rounded.to_torch(), expected.float())
        assert np.array_equal(full.steps("a", "logits"), half.steps("a", "logits"))
    with h5py.File(half.path) as file, Recording.open(half.path) as again:  # any other reader sees numbers too
        site = again.sites[0]
        plain = file[f"activations/{site}"][:].astype(np.float32)
        assert np.array_equal(plain, again[site].to_numpy())


def test_activations_beyond_float16_are_an_error(tmp_path: Path) -> None:
    """They would be stored as infinities, which no analysis can use."""
    run = make_run(tmp_path / "run", LivesConfig(), MLPConfig())
    grown = [Scale("a/actor/hidden_2", 1e6)]
    with pytest.raises(
        RecordingError, match=r"a/actor/hidden_2 reaches .*e\+0\d, above float16's maximum of 65504; .*bfloat16"
    ):
        record(run, episodes=3, edits=grown, dtype="float16", progress=False)
    assert not run.recordings
    with record(run, episodes=3, edits=grown, dtype="bfloat16", progress=False) as held:
        values = held["a/actor/hidden_2"].to_numpy()
        assert np.isfinite(values).all() and np.abs(values).max() > 65504
    in_critic = [Scale("a/critic/hidden_2", 1e6)]
    for model in (MLPConfig(), GRUConfig(hidden=(6, 6))):
        run = make_run(tmp_path / model.name, LivesConfig(), model)
        with pytest.raises(RecordingError, match=r"a/critic/hidden_2 reaches .*bfloat16"):
            record(run, episodes=3, edits=in_critic, sites="*/critic/*", dtype="float16", progress=False)
        assert not run.recordings


def test_after_an_error_hooks_are_removed_and_written_episodes_remain(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", LivesConfig(fail_at=60, says_length=True), centralised=False)
    seen: list[torch.nn.Module] = []
    original = Run.policies

    def policies(self: Run, *args: object, **options: object) -> object:
        activations = original(self, *args, **options)  # type: ignore[arg-type]
        seen.extend(activations.values())
        return activations

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "policies", policies)
        with pytest.raises(RuntimeError, match="the toy broke"):
            record(run, episodes=100, n_envs=4, seed=3, progress=False)
    assert seen and not any(module._forward_hooks for policy in seen for module in policy.modules())
    with Recording.open(run.recordings["recording"]) as recording:
        assert not recording.complete and len(recording.episodes) > 20
        check_lives(recording, recording.episodes.index.tolist(), 3)


def test_a_site_that_never_fires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", LivesConfig())
    monkeypatch.setattr(type(run.policies()["a"]), "sites", _with_a_dead_site)
    with pytest.raises(SiteError, match=r"never fired.*a/actor/dead"):
        record(run, episodes=3, progress=False)
    assert run.recordings == {}


def test_a_site_that_stops_firing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", LivesConfig())
    kind = type(run.policies()["a"])
    original, calls = kind.act, itertools.count()

    def act(self: Any, observation: torch.Tensor, **options: Any) -> Any:
        if next(calls) < 200:  # beyond the dry run
            self.dead(torch.zeros(len(observation), self.group.n_agents, 4))
        return original(self, observation, **options)

    monkeypatch.setattr(kind, "sites", _with_a_dead_site)
    monkeypatch.setattr(kind, "act", act)
    with pytest.raises(SiteError, match=r"'./actor/dead' fired at first, but not at every step"):
        record(run, episodes=400, n_envs=2, fill="captured", progress=False)


def _with_a_dead_site(policy: object) -> list[object]:
    from marlnb.models.hooks.sites import Site

    module = policy.__dict__.setdefault("dead", torch.nn.Identity())
    return [Site(f"{policy.group.name}/actor/dead", module, policy.group.n_agents, 4, "hidden")]  # type: ignore[attr-defined]


def test_nothing_is_overwritten_and_an_equal_recording_is_reopened(lives: Run) -> None:
    record(lives, episodes=3, progress=False).close()
    stamp = lives.recordings["recording"].stat().st_mtime_ns
    with pytest.raises(RecordingError, match="already exists"):
        record(lives, episodes=3, progress=False)
    with record(lives, episodes=3, exist="open", progress=False) as again:
        assert again.complete and len(again.episodes) == 3
    with pytest.raises(RecordingError, match="episodes was 3, requested 4"):
        record(lives, episodes=4, exist="open", progress=False)
    with pytest.raises(RecordingError, match="dtype was 'float32', requested 'float16'"):
        record(lives, episodes=3, exist="open", dtype="float16", progress=False)
    assert lives.recordings["recording"].stat().st_mtime_ns == stamp


def test_an_incomplete_recording_is_renamed_and_recorded_again(lives: Run) -> None:
    record(lives, episodes=3, progress=False).close()
    with h5py.File(lives.recordings["recording"], "r+") as file:
        file.attrs["complete"] = False
    with record(lives, episodes=3, exist="open", progress=False) as again:
        assert again.complete
    assert sorted(lives.recordings) == ["recording", "recording.incomplete-1"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sites": "a/actor/hiden_1"}, SiteError, "a/actor/hidden_1"),
        ({"agents": "a_9"}, RecordingError, "a_"),
        ({"dtype": "float61"}, ConfigError, "float16"),
        ({"episodes": 0}, ConfigError, "episodes"),
        ({"every": 0}, ConfigError, "every"),
        ({"name": "../x"}, RecordingError, "name"),
        ({"sites": "b/actor/*", "agents": "a_0"}, SiteError, "none of the recorded"),
    ],
)
def test_bad_requests(lives: Run, options: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        record(lives, progress=False, **options)  # type: ignore[arg-type]
    assert lives.recordings == {}


def test_the_plan_states_what_is_written(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", LivesConfig(says_length=True), centralised=False)
    plan = plan_recording(run, episodes=40, sites="*/actor/hidden_1", dtype="float16")
    assert plan.rows == 40 * 9 and plan.bounded and plan.fits and run.recordings == {}
    sizes = {field.path: field.row_bytes for field in plan.fields}
    assert sizes["activations/a/actor/hidden_1"] == 3 * 64 * 2 and sizes["steps/a/observation"] == 3 * 3 * 4
    assert "activations/a/actor/hidden_1" in str(plan) and "3 agent" in plan._repr_html_()
    with record(run, episodes=40, sites="*/actor/hidden_1", dtype="float16", progress=False) as recording:
        assert len(recording) <= plan.rows
        written = {path: recording.file[path] for path in sizes}
        assert {path: data[:1].nbytes for path, data in written.items()} == sizes
        assert recording.path.stat().st_size < plan.size_bytes


def test_a_full_disk_is_an_error_before_recording_starts(lives: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marlnb.recording.capture.plan.free_bytes", lambda path: 1000)
    with pytest.raises(RecordingError, match=r"it needs 4.* MB, and the disk /.* has 1 kB free; .*every="):
        record(lives, episodes=3, progress=False)
    assert lives.recordings == {}


def test_labels_belong_to_the_recorded_time_step(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", ENVIRONMENTS.get("mpe/simple_speaker_listener")())

    def goal(time_step: TimeStep) -> torch.Tensor:
        return time_step.observation["speaker"][:, 0].argmax(-1)  # mpe2: the speaker sees the goal's colour alone

    with record(run, episodes=20, labels={"seen": goal}, progress=False) as recording:
        assert np.array_equal(recording.label("seen"), recording.label("goal"))
        assert recording.classes("goal") == ["red", "green", "blue"]
        for _, episode in recording.episodes.iterrows():
            assert len(set(recording.label("goal").to_numpy()[int(episode.start) : int(episode.start) + 25])) == 1
