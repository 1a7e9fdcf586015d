"""`--record` sets what is recorded during a training run."""

from __future__ import annotations

import argparse

import pytest

from marlnb.cli.train_and_resume import add_record_argument, chosen_callbacks
from marlnb.errors import ConfigError
from marlnb.recording.capture.while_training import RecordWhileTraining


def chosen(*words: str) -> list[RecordWhileTraining]:
    parser = argparse.ArgumentParser()
    add_record_argument(parser)
    return chosen_callbacks(parser.parse_args(words))


def test_what_is_asked_for() -> None:
    assert chosen() == []
    asked = chosen("--record", "every_iterations=5,episodes=3,sites=*/critic/*,name=talk")
    assert asked == [RecordWhileTraining(every_iterations=5, episodes=3, sites="*/critic/*", name="talk")]
    (asked,) = chosen("--record", "sites=[*/actor/*,agent/critic/head],agents=[agent_0],every=2")
    assert (asked.sites, asked.agents, asked.every) == (("*/actor/*", "agent/critic/head"), ("agent_0",), 2)
    with pytest.raises(ConfigError, match=r"no option 'evry' of RecordWhileTraining; did you mean 'every'"):
        chosen("--record", "evry=5")
    with pytest.raises(ConfigError, match="every: expected a number; got 'x'"):
        chosen("--record", "every=x")
