"""Pruning of dictionaries on known directions that mostly fire together, and frequent features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.stats import kurtosis

from marlnb import groundtruth
from marlnb.analysis.dictionaries.dictionary import Dictionary
from marlnb.analysis.dictionaries.pruning import prune_dictionary
from marlnb.analysis.dictionaries.train import train_dictionary
from marlnb.errors import AnalysisError
from marlnb.plots import feature_density
from marlnb.recording.file.reader import Recording

SITE, AGENT = "agent/actor/hidden_2", "agent_0"
N_PAIRS, N_UNITS = 8, 32


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    subject = groundtruth.planted("decoy", path=tmp_path_factory.mktemp("pruning"))
    subject.record(160).close()
    (path,) = subject.agents.path.rglob("recording.h5")
    return path


def written(path: Path, rng: np.random.Generator) -> np.ndarray:
    """Puts pairs of directions in the place of the activations: the second is there with seven of ten of the first, and
    now and then alone. Returns them `[direction, unit]`."""
    directions = rng.standard_normal((2 * N_PAIRS, N_UNITS))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    with h5py.File(path, "r+") as file:
        data = file[f"activations/{SITE}"]
        first = rng.random((*data.shape[:2], N_PAIRS)) < 0.08
        second = rng.random(first.shape) < np.where(first, 0.7, 0.03)
        data[...] = (np.concatenate((first, second), -1) @ directions).astype(np.float32)
    return directions


@pytest.fixture(scope="module")
def paired(recorded: Path) -> Iterator[tuple[Recording, np.ndarray]]:
    directions = written(recorded, np.random.default_rng(5))
    with Recording.open(recorded) as result:
        yield result, directions


@pytest.fixture(scope="module")
def plain(paired: tuple[Recording, np.ndarray]) -> Dictionary:
    return train_dictionary(
        paired[0], site=SITE, agent=AGENT, kind="standard", n_features=64, l1=0.3, epochs=80, progress=False
    )


def test_pruning_separates_directions_that_fire_together(
    paired: tuple[Recording, np.ndarray], plain: Dictionary
) -> None:
    recording, directions = paired
    other = train_dictionary(
        recording, site=SITE, agent=AGENT, kind="standard", n_features=64, l1=0.3, epochs=80, seed=1, progress=False
    )
    result = [prune_dictionary(one, recording.path, seed=seed) for seed, one in enumerate((plain, other))]
    pruned = min(result, key=lambda one: one.n_features)
    before, after = (directions @ one.autoencoder.decoder.numpy().T for one in (plain, pruned))
    assert before.max(1).min() < 0.9, "features to spare share what comes together"
    assert after.max(1).min() > 0.98
    assert pruned.n_features == 2 * N_PAIRS
    assert pruned.explained > 0.95 and not pruned.warnings
    features = pruned.features(recording.path)[:, 0]
    named = after.argmax(1)
    assert len(set(named)) == 2 * N_PAIRS
    there = recording[SITE].sel(agent=[AGENT]).to_numpy()[:, 0] @ np.linalg.pinv(directions)
    agree = (features[:, named] > 0.5 * features[:, named].max(0)) == (there > 0.5)
    assert agree.mean() > 0.99, "the encoder finds the codes"


def test_frequent_features_draw_a_warning_and_rare_ones_do_not(
    paired: tuple[Recording, np.ndarray], plain: Dictionary, recorded: Path, tmp_path: Path
) -> None:
    recording, _ = paired
    values = recording[SITE].sel(agent=[AGENT]).to_numpy()[:, 0] @ plain.autoencoder.decoder.numpy().T
    np.testing.assert_allclose(plain.kurtosis, kurtosis(values.astype(np.float64), axis=0), rtol=1e-3, atol=1e-3)
    assert not plain.feature_warnings
    dense = tmp_path / "dense.h5"
    dense.write_bytes(recorded.read_bytes())
    with h5py.File(dense, "r+") as file:
        data = file[f"activations/{SITE}"]
        data[...] = np.random.default_rng(6).uniform(-1, 1, data.shape).astype(np.float32)
    with Recording.open(dense) as often:
        result = train_dictionary(
            often, site=SITE, agent=AGENT, kind="standard", n_features=16, epochs=2, progress=False
        )
    result = replace(result, explained=0.9)  # this figure is of the doubt alone
    assert not result.warnings and any("often there" in note for note in result.feature_warnings)
    assert "DOUBTFUL" in repr(result) and "DOUBTFUL" in result._repr_html_()
    shown = " ".join(text.get_text() for text in feature_density(result).texts)
    always = feature_density(replace(result, density=np.ones(16)))
    assert max(bar.get_height() for bar in always.patches if bar.get_width() > 0) == 16
    assert "often there" in shown.replace("\n", " ")


def test_kurtosis_is_saved_and_nan_in_older_files(plain: Dictionary, tmp_path: Path) -> None:
    path = plain.save(tmp_path / "features.h5")
    np.testing.assert_array_equal(Dictionary.load(path).kurtosis, plain.kurtosis)
    with h5py.File(path, "r+") as file:
        del file["kurtosis"]
    older = Dictionary.load(path)
    assert np.isnan(older.kurtosis).all() and older.feature_warnings == ()


def test_a_dictionary_that_never_fires_cannot_be_pruned(
    paired: tuple[Recording, np.ndarray], plain: Dictionary
) -> None:
    with pytest.raises(AnalysisError, match="none of the 64 features of agent/actor/hidden_2 ever fires"):
        prune_dictionary(replace(plain, density=np.zeros(64)), paired[0])
