"""The whole grid of planted policies, each made and recorded once."""

import itertools

import pytest

from marlnb.groundtruth import circuit_names, planted
from marlnb.groundtruth.analyses import dictionary, dictionary_by_feature

GRID = list(itertools.product(circuit_names(), ("mlp", "gru"), (True, False)))
EPISODES = 20
DICTIONARY_EPISODES = 160  # that it is trained on, of 400 in `make groundtruth`


@pytest.fixture
def quick_dictionaries(monkeypatch):
    """Trains dictionaries on fewer episodes: they recover as much, and take half the time."""
    for module in (dictionary, dictionary_by_feature):
        monkeypatch.setattr(module, "EPISODES", DICTIONARY_EPISODES)


@pytest.fixture(scope="session")
def planted_instance(tmp_path_factory):
    """(circuit, network, shared) -> the instance and its recording."""
    made, folder = {}, tmp_path_factory.mktemp("groundtruth")

    def get(name, network="mlp", shared=True, seed=0):
        asked = (name, network, shared, seed)
        if asked not in made:
            subject = planted(name, network, shared=shared, seed=seed, path=folder)
            made[asked] = subject, subject.record(EPISODES)
        return made[asked]

    yield get
    for _, recording in made.values():
        recording.close()
