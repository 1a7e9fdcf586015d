"""The worked example of an analysis: its numbers, its figure and its score on planted circuits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

import marlnb as mnb
from marlnb.analysis.data.row_values import row_values
from marlnb.analysis.data.views import View
from marlnb.errors import AnalysisError
from marlnb.groundtruth import planted
from marlnb.groundtruth.benchmark import benchmark
from tests.examples.unit_information import ground_truth  # noqa: F401  (registers unit_information)
from tests.examples.unit_information.analysis import unit_information
from tests.examples.unit_information.figure import information_by_unit


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> mnb.Recording:
    instance = planted("concept_neuron", "mlp", shared=True, seed=0, path=tmp_path_factory.mktemp("planted"))
    return instance.record(30)


def planted_label(recording: mnb.Recording) -> str:
    """A label of the recording with few classes."""
    return next(name for name in recording.labels if len(recording.classes(name)) > 1)


def test_bits_equal_those_of_scikit_learn(recording: mnb.Recording) -> None:
    site = next(name for name in recording.sites if name.endswith("hidden_1"))
    agent = recording[site].labels["agent"][0]
    label = planted_label(recording)
    result = unit_information(recording, site=site, label=label, agent=agent, n_bins=4)
    units = View(recording, site, agent).open()
    values = row_values(units, label).values
    x = units.all()
    for unit in (0, int(np.argmax(result.bits))):
        order = np.argsort(np.argsort(x[:, unit], kind="stable"), kind="stable")
        if len(np.unique(x[:, unit])) == len(x):  # without ties, ranks are unique
            bins = np.minimum(4 * order // len(x), 3)
            assert result.bits[unit] == pytest.approx(mutual_info_score(bins, values) / np.log(2), abs=1e-9)
    assert json.dumps(result.to_json(), allow_nan=False) and str(len(result.bits)) in repr(result)
    assert len(information_by_unit(result).patches) == len(result.bits)


def test_a_constant_label_is_an_error(recording: mnb.Recording) -> None:
    site = next(name for name in recording.sites if name.endswith("hidden_1"))
    agent = recording[site].labels["agent"][0]
    with pytest.raises(AnalysisError, match="never varies"):
        unit_information(recording, site=site, agent=agent, label=lambda r: np.zeros(len(r)))


def test_registration_adds_the_analysis_to_the_benchmark(tmp_path: Path) -> None:
    """Every unit that it names carries the concept, and it names most of those that do."""
    scores = benchmark([0], names=["unit_information"], circuits=["concept_neuron"], episodes=30, path=tmp_path).scores
    items = [item for score in scores for item in score.items]
    assert items and np.mean([item.recovered for item in items]) > 0.9
