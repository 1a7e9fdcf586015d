"""Dictionaries of activations that are sums of known directions, and policies that use their features."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import h5py
import numpy as np
import pytest
import torch

from marlnb import groundtruth
from marlnb.analysis.data.activation_stream import ActivationStream
from marlnb.analysis.dictionaries import train as dictionary_module
from marlnb.analysis.dictionaries.behaviour_preserved import behaviour_preserved
from marlnb.analysis.dictionaries.dictionary import Dictionary
from marlnb.analysis.dictionaries.evaluation import _TopEpisodes
from marlnb.analysis.dictionaries.pruning import prune_dictionary
from marlnb.analysis.dictionaries.train import train_dictionary
from marlnb.errors import AnalysisError, ConfigError, ShapeError
from marlnb.models.hooks.apply_edits import edited
from marlnb.models.hooks.capture import capture
from marlnb.models.hooks.edits import Ablate
from marlnb.models.networks.sparse_autoencoder import SparseAutoencoder
from marlnb.models.policies.with_features import WithFeatures
from marlnb.recording.capture.recorder import record
from marlnb.recording.file.reader import Recording
from marlnb.training.policies.evaluation import evaluate
from marlnb.training.runs.run import Run
from tests.disk_limit import max_file_bytes

SITE = "listener/actor/hidden_1"
HIDDEN = "agent/actor/hidden_2"
N_TRUE, N_UNITS = 24, 64


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("dictionary") / "run"
    shutil.copytree(Path(__file__).parents[3] / "data" / "speaker_listener", folder)
    return Run.open(folder)


@pytest.fixture(scope="module")
def recording(run: Run) -> Iterator[Recording]:
    with record(run, episodes=120, sites="*/actor/*", progress=False) as result:
        yield result


@pytest.fixture(scope="module")
def planted(run: Run, recording: Recording) -> Iterator[tuple[Recording, np.ndarray]]:
    """The recording with the site's activations replaced by sums of one to three of 24 directions that are known."""
    path = run.path / "recordings" / "planted.h5"
    recording.close()
    shutil.copy(recording.path, path)
    rng = np.random.default_rng(3)
    directions = rng.standard_normal((N_TRUE, N_UNITS))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    with h5py.File(path, "r+") as file:
        data = file[f"activations/{SITE}"]
        weight = (rng.random((len(data), N_TRUE)) < 2 / N_TRUE) * rng.uniform(1, 2, (len(data), N_TRUE))
        data[...] = (weight @ directions + 0.3)[:, None, :].astype(np.float32)
    with Recording.open(path) as result:
        yield result, directions


@pytest.fixture(scope="module")
def dictionary(run: Run, recording: Recording) -> Dictionary:
    with Recording.open(recording.path) as opened:
        return train_dictionary(opened, site=SITE, n_features=96, k=8, epochs=40, progress=False)


@pytest.mark.parametrize("kind", ["topk", "standard"])
def test_planted_directions_are_recovered(planted: tuple[Recording, np.ndarray], kind: str) -> None:
    recording, directions = planted
    result = train_dictionary(recording, site=SITE, n_features=48, kind=kind, k=4, epochs=60, lr=5e-3, progress=False)
    cosine = directions @ result.autoencoder.decoder.numpy().T
    assert np.mean(cosine.max(axis=1) > 0.9) >= 0.95
    assert result.explained > 0.9
    assert result.active < 8


@pytest.fixture(scope="module")
def superposed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Recording, np.ndarray]]:
    """A recording whose 32 units hold 64 directions, two of which are there at a time: more than there are units."""
    planted = groundtruth.planted("decoy", path=tmp_path_factory.mktemp("superposed"))
    planted.record(120).close()
    rng = np.random.default_rng(int(torch.randint(2**31, ()).item()))
    directions = rng.standard_normal((64, 32))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    (path,) = planted.agents.path.rglob("recording.h5")
    with h5py.File(path, "r+") as file:
        data = file["activations/agent/actor/hidden_2"]
        there = rng.random((*data.shape[:2], 64)) < 2 / 64
        data[...] = (there * rng.uniform(0.5, 1.5, there.shape) @ directions).astype(np.float32)
    with Recording.open(path) as result:
        yield result, directions


def test_more_directions_than_units_are_recovered_with_any_seed(
    superposed: tuple[Recording, np.ndarray],
) -> None:
    recording, directions = superposed
    one, other = (train_dictionary(recording, site=HIDDEN, seed=seed, progress=False) for seed in (0, 1))
    cosine = directions @ one.autoencoder.decoder.numpy().T
    assert cosine.max(1).mean() >= 0.95  # mean max cosine similarity
    again, real = one.agreement(other), cosine.max(0) > 0.95
    assert real.sum() > 40 and again[real].mean() > 0.95 > again[cosine.max(0) < 0.8].mean() + 0.1
    assert one.agreement(one)[one.density > 0] == pytest.approx(1.0, abs=1e-5)
    assert np.isnan(again[one.dead]).all()


class Rows:
    """Activations in memory, in the place of a recording's stream."""

    def __init__(self, values: torch.Tensor) -> None:
        self.values, self.train = values, np.arange(len(values))

    def blocks(self, index: np.ndarray) -> Iterator[tuple[np.ndarray, torch.Tensor, np.ndarray]]:
        for rows in np.array_split(index, 3):
            yield rows, self.values[rows][:, None], np.ones((len(rows), 1), bool)


def test_the_decoder_is_refitted_to_the_features(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features of known size along known directions, the decoder bent: least squares finds the directions again."""
    monkeypatch.setattr(dictionary_module, "PRIOR_WEIGHT", 1e-9)
    true = torch.nn.functional.normalize(torch.randn(4, 8), dim=1)
    features = torch.rand(300, 4) * (torch.rand(300, 4) < 0.5)
    features[:, 1] = features[:, 0] * (torch.rand(300) < 0.7)  # one that goes along with another
    values = features @ true + 0.25
    autoencoder = SparseAutoencoder(8, 4, "standard", 0)
    with torch.no_grad():
        autoencoder.encoder.copy_(torch.linalg.pinv(true) / 2)  # shrunk to a half
        autoencoder.encoder_bias.copy_(-(torch.full((8,), 0.25) @ autoencoder.encoder) - 1e-5)
        autoencoder.decoder.copy_(torch.nn.functional.normalize(true + 0.3 * true.roll(1, 0), dim=1))
        dictionary_module._refit_decoder(autoencoder, cast(ActivationStream, Rows(values)))
        assert torch.allclose(autoencoder.decoder, true, atol=1e-3)
        assert torch.allclose(autoencoder(values), features, atol=1e-3)
        assert torch.allclose(autoencoder.decode(autoencoder(values)), values, atol=1e-3)


def test_reported_numbers_match_its_features(recording: Recording, dictionary: Dictionary) -> None:
    with Recording.open(recording.path) as opened:
        features = dictionary.features(opened)[:, 0]
        activations = opened[SITE].to_numpy()[:, 0]
        episode, t = opened.rows["episode"].to_numpy(), opened.rows["t"].to_numpy()
    assert features.shape == (len(activations), 96)
    assert ((features > 0).sum(1) <= 8).all()
    strongest = int(np.argmax(dictionary.density))
    top = dictionary.top(strongest).iloc[0]
    row = features[:, strongest].argmax()
    assert (top.episode, top.t, top.agent) == (episode[row], t[row], "listener_0")
    assert top.value == pytest.approx(features[row, strongest], rel=1e-5)
    per_episode = [features[episode == number, strongest].max() for number in np.unique(episode)]
    assert dictionary.top(strongest)["value"].to_numpy() == pytest.approx(sorted(per_episode)[::-1][:16], rel=1e-5)
    decoded = dictionary.autoencoder.decode(torch.from_numpy(features)).numpy()
    missed = ((activations - decoded) ** 2).sum() / ((activations - activations.mean(0)) ** 2).sum()
    assert dictionary.explained == pytest.approx(1 - missed, abs=0.05)


def test_an_episode_that_continues_in_the_next_block_is_one_top_episode() -> None:
    """One feature of two agents `[row, agent, feature]`: episode 4 reaches 2 in the first block and 3 in the second;
    episode 5 reaches 2.5, and no more than 1.5 in the third."""
    top = _TopEpisodes(1)
    top.add(torch.tensor([[1.0, 0.0], [0.0, 2.0]])[..., None], np.array([3, 4]), np.array([7, 0]))
    top.add(torch.tensor([[3.0, 0.5], [0.0, 2.5]])[..., None], np.array([4, 5]), np.array([1, 0]))
    top.add(torch.tensor([[1.5, 0.0]])[..., None], np.array([5]), np.array([1]))
    columns = [column[0, :4].tolist() for column in (top.value, top.episode, top.t, top.agent)]
    assert columns == [[3.0, 2.5, 1.0, -1.0], [4, 5, 3, -1], [1, 0, 7, -1], [0, 1, 0, -1]]


def test_a_full_disk_ends_no_process_that_saves(dictionary: Dictionary, tmp_path: Path) -> None:
    with max_file_bytes(3000), pytest.raises(AnalysisError, match="a limit on the size of files is reached"):
        dictionary.save(tmp_path / "features.h5")
    assert list(tmp_path.iterdir()) == []


def test_save_and_load(dictionary: Dictionary, tmp_path: Path) -> None:
    loaded = Dictionary.load(dictionary.save(tmp_path / "features.h5"))
    x = torch.randn(5, N_UNITS)
    assert torch.equal(loaded.autoencoder(x), dictionary.autoencoder(x))
    assert loaded.to_json() == dictionary.to_json() and loaded.table().equals(dictionary.table())
    with pytest.raises(AnalysisError, match="exists already"):
        dictionary.save(tmp_path / "features.h5")


def test_attached_features_change_nothing_until_they_are_edited(run: Run, dictionary: Dictionary) -> None:
    policy = run.policies()["listener"]
    attached = dictionary.attach(policy)
    observation = torch.randn(7, 1, policy.group.observation.size)
    plain = policy.logits(observation)[0]
    with torch.no_grad(), capture(attached, f"{SITE}*") as activations:
        assert torch.equal(attached.logits(observation)[0], plain)
    features, before = activations[f"{SITE}_features"], activations[SITE]
    assert torch.equal(features, dictionary.autoencoder(before))
    feature = int(features[:, 0].sum(0).argmax())
    with torch.no_grad(), edited(attached, [Ablate(f"{SITE}_features", units=(feature,))]):
        with capture(attached, SITE) as changed:
            attached.logits(observation)
    direction = dictionary.autoencoder.decoder[feature] * dictionary.autoencoder.scale
    assert torch.allclose(changed[SITE], before - features[..., feature, None] * direction, atol=1e-5)


def test_features_are_recorded_and_matter(run: Run, recording: Recording, dictionary: Dictionary) -> None:
    policy_source = dictionary.policy_source(run)
    with record(policy_source, episodes=8, sites=f"{SITE}*", name="features", progress=False) as result:
        with Recording.open(recording.path) as plain:
            first = plain[SITE].sel(episode=range(8)).to_numpy()
            expected = dictionary.features(plain)[: len(first)]
        assert result[SITE].to_numpy() == pytest.approx(first, abs=1e-5)
        assert result[f"{SITE}_features"].to_numpy() == pytest.approx(expected, abs=1e-4)
        assert result.checkpoint != tuple(run.origin())
    assert evaluate(policy_source, episodes=8).return_mean == evaluate(run, episodes=8).return_mean
    silenced = evaluate(policy_source, episodes=40, edits=[Ablate(f"{SITE}_features")])
    assert silenced.score < evaluate(run, episodes=40).score - 2


def test_gradients_by_features_are_those_of_their_directions(run: Run, dictionary: Dictionary) -> None:
    attached = dictionary.attach(run.policies()["listener"])
    observation = torch.randn(3, 1, attached.group.observation.size, requires_grad=True)
    plain = torch.autograd.grad(attached.logits(observation)[0].sum(), observation)[0]
    kept: list[torch.Tensor] = []
    hook = attached.tap.register_forward_hook(lambda module, inputs, output: kept.append(output))
    total = attached.logits(observation)[0].sum()
    hook.remove()
    by_feature, by_observation = torch.autograd.grad(total, [kept[0], observation])
    assert torch.allclose(by_observation, plain, atol=1e-6)
    direction = dictionary.autoencoder.decoder * dictionary.autoencoder.scale
    site = next(site for site in attached.sites() if site.name == SITE)
    seen: list[torch.Tensor] = []
    hook = site.module.register_forward_hook(lambda module, inputs, output: seen.append(output))
    total = attached.logits(observation)[0].sum()
    hook.remove()
    by_unit = torch.autograd.grad(total, seen[0])[0]
    assert torch.allclose(by_feature, by_unit @ direction.T, atol=1e-5)


def test_the_features_preserve_the_behaviour(run: Run, recording: Recording, dictionary: Dictionary) -> None:
    with Recording.open(recording.path) as opened:
        preserved = behaviour_preserved(dictionary, opened)
    assert preserved.logits_preserved > 0.8 > preserved.logits_preserved_by_mean
    assert preserved.actions_preserved > preserved.actions_preserved_by_mean
    assert preserved.logits.low <= preserved.logits_preserved <= preserved.logits.high
    assert preserved.logits_gain.value == pytest.approx(preserved.logits_preserved - preserved.logits_preserved_by_mean)
    assert preserved.verdict.startswith(f"The reconstruction of {SITE} of listener_0 preserves ")
    assert f"{preserved.n_rows} rows of {preserved.n_episodes} episodes" in repr(preserved)
    assert preserved.table().shape == (6, 5) and preserved.to_json()["n_episodes"] == preserved.n_episodes
    assert dictionary.explained > 0.8 and not dictionary.warnings


def test_agents_with_different_networks_and_constant_sites_are_rejected(
    run: Run, planted: tuple[Recording, np.ndarray]
) -> None:
    recording, _ = planted
    with pytest.raises(AnalysisError, match="speaker_0"):
        train_dictionary(recording, site=SITE, agent="speaker_0", progress=False)
    with pytest.raises(ShapeError, match="64 units"):
        WithFeatures(run.policies()["listener"], SITE, SparseAutoencoder(8, 16, "topk", 2))


def test_too_many_features_for_the_data_draw_a_warning(planted: tuple[Recording, np.ndarray]) -> None:
    recording, _ = planted
    result = train_dictionary(recording, site=SITE, n_features=4000, k=1, epochs=1, progress=False)
    assert any("examples for 4000 features" in note for note in result.warnings)
    assert "NOT TO BE TRUSTED" in repr(result)


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recording]:
    """Of 32 units 3, 7 and 11 are on one at a time, more or less; the others are loud and never silent."""
    planted = groundtruth.planted("decoy", path=tmp_path_factory.mktemp("silent"))
    planted.record(80).close()
    (path,) = planted.agents.path.rglob("recording.h5")
    rng = np.random.default_rng(8)
    with h5py.File(path, "r+") as file:
        data = file["activations/agent/actor/hidden_2"]
        values = 3 + rng.standard_normal(data.shape)
        on = np.eye(3)[rng.integers(3, size=data.shape[:2])]
        values[..., [3, 7, 11]] = on * rng.uniform(0.2, 1.8, on.shape)
        data[...] = values.astype(np.float32)
    with Recording.open(path) as result:
        yield result


def test_a_dictionary_of_some_units_from_rest_ignores_the_others(silent: Recording, tmp_path: Path) -> None:
    trained = train_dictionary(
        silent, site=HIDDEN, agent="agent_0", units=[3, 7, 11], from_rest=True, kind="standard", l1=0.3, epochs=60,
        progress=False,
    )  # fmt: skip
    from_rest = prune_dictionary(trained, silent)
    named = np.flatnonzero(from_rest.density)
    directions = from_rest.autoencoder.decoder.numpy()[named]
    assert np.sort(directions.argmax(1)).tolist() == [3, 7, 11] and directions.max(1).min() > 0.999
    assert from_rest.explained > 0.99 and not from_rest.autoencoder.decoder_bias.any()
    assert not trained.autoencoder.decoder_bias.any() and trained.units == (3, 7, 11)
    features, values = from_rest.features(silent)[:, 0], silent[HIDDEN].sel(agent=["agent_0"]).to_numpy()[:, 0]
    others = torch.from_numpy(values).clone()
    others[:, [unit for unit in range(32) if unit not in (3, 7, 11)]] = 0.0
    assert np.allclose(from_rest.autoencoder(others).numpy(), features, atol=1e-6), "the others are not read"
    parts = from_rest.autoencoder.decode(torch.from_numpy(features)).numpy()
    assert np.allclose(parts[:, [3, 7, 11]], values[:, [3, 7, 11]], atol=0.1)
    assert np.allclose(np.delete(parts, [3, 7, 11], axis=1).std(0), 0.0, atol=1e-6), "nor written"
    again = Dictionary.load(from_rest.save(tmp_path / "some.h5"))
    assert again.units == (3, 7, 11) and again.from_rest and again.explained == from_rest.explained


def test_one_unit_has_one_feature(silent: Recording) -> None:
    result = train_dictionary(
        silent, site=HIDDEN, agent="agent_0", units=[7], from_rest=True, kind="standard", epochs=20, progress=False
    )
    assert result.n_features == 4 and prune_dictionary(result, silent).n_features == 1


@pytest.mark.parametrize("units", [[32], [-1], [3, 3], []])
def test_invalid_units_are_rejected(silent: Recording, units: list[int]) -> None:
    with pytest.raises(AnalysisError, match="units must be distinct units of agent/actor/hidden_2, 0 to 31"):
        train_dictionary(silent, site=HIDDEN, agent="agent_0", units=units, progress=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_features": 0}, "n_features must be at least 1; got 0"),
        ({"epochs": 0}, "epochs must be at least 1; got 0"),
        ({"epochs": 1.5}, r"epochs must be a whole number; got 1\.5"),
        ({"batch_rows": 0}, "batch_rows must be at least 1; got 0"),
        ({"lr": float("nan")}, "lr must be a finite number; got nan"),
        ({"lr": -1}, "lr must be more than 0; got -1"),
    ],
)
def test_numbers_out_of_range_are_errors(silent: Recording, options: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train_dictionary(silent, site=HIDDEN, progress=False, **options)  # type: ignore[arg-type]


def test_a_dictionary_describes_one_checkpoint_of_a_recording_of_several(run: Run) -> None:
    """Each checkpoint has rows 0 to 199 and 200 to 399: eight episodes of 25 steps."""
    options = {"site": SITE, "n_features": 8, "epochs": 1, "progress": False}
    with record(run, checkpoint=[10, 50], episodes=8, sites=SITE, name="two", progress=False) as two:
        with pytest.raises(AnalysisError, match=r"spans checkpoints \[10, 50\].*checkpoint="):
            train_dictionary(two, **options)  # type: ignore[arg-type]
        values = two[SITE].to_numpy()[:, 0]
        for iteration, first in ((10, 0), (50, 200)):
            dictionary = train_dictionary(two, checkpoint=iteration, **options)  # type: ignore[arg-type]
            assert (dictionary.n_train, dictionary.n_held_out) == (150, 50)
            stream = ActivationStream(two, SITE, None, seed=0, checkpoint=iteration)
            assert sorted([*stream.train, *stream.held_out]) == list(range(first, first + 200))
            np.testing.assert_allclose(dictionary.autoencoder.mean, values[stream.train].mean(0), atol=1e-5)
            top = dictionary.top_episode[dictionary.top_episode >= 0]
            assert top.min() >= first // 25 and top.max() < first // 25 + 8
            expected = {"iteration": iteration, "sha256": run.checkpoint(iteration).sha256}
            assert dictionary.origin["checkpoint"] == expected
        with pytest.raises(AnalysisError, match="spans checkpoints"):
            prune_dictionary(dictionary, two)
        with pytest.raises(AnalysisError, match="spans checkpoints"):
            behaviour_preserved(dictionary, two, policies=run.policies())
        chosen = behaviour_preserved(dictionary, two, checkpoint=50)
        assert chosen == behaviour_preserved(dictionary, two, checkpoint=50, policies=run.policies(50))
        assert chosen != behaviour_preserved(dictionary, two, checkpoint=10)
        held_out = values[stream.held_out]
        error = (
            (held_out - dictionary.autoencoder.decode(dictionary.autoencoder(torch.from_numpy(held_out))).numpy()) ** 2
        ).sum()
        variance = ((held_out - dictionary.autoencoder.mean.numpy()) ** 2).sum()
        assert dictionary.explained == pytest.approx(1 - error / variance, abs=1e-4)
