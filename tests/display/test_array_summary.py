"""Arrays in one line; and what users print shows no more than that of any array."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import marlnb as mnb
from marlnb.analysis.decoding.linear_decoder import fit_linear
from marlnb.analysis.interventions.usage_result import UsageTest
from marlnb.analysis.representations.tuning_result import UntrainedTuning
from marlnb.display.array_summary import array_summary, fields_summary
from marlnb.groundtruth.answer_key import Node
from marlnb.populations.league.payoff import PayoffTable

NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.])")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (np.array([[0.5, -1.25]]), "[1, 2] float64 from -1.25 to 0.5"),
        (torch.tensor([3, 1, 2]), "[3] int64 from 1 to 3"),
        (torch.tensor([True, False, True]), "[3] bool, 2 of 3 true"),
        (torch.zeros(0, 4), "[0, 4] float32"),
        (torch.tensor([1.5, 2.5], dtype=torch.bfloat16), "[2] bfloat16 from 1.5 to 2.5"),
        (np.array(["a", "b"]), "[2] <U1"),
        (np.array([1.0, np.nan]), "[2] float64 from nan to nan"),
    ],
)
def test_an_array_in_one_line(values: object, text: str) -> None:
    assert array_summary(values) == text


def test_fields_in_one_line() -> None:
    @dataclass
    class Example:
        name: str
        values: np.ndarray
        many: tuple[float, ...]
        few: tuple[int, ...] = (1, 2)
        by_group: object = None

    example = Example("a", np.arange(64), tuple(np.linspace(0, 1, 64).tolist()), by_group={"agent": torch.ones(2, 3)})
    assert fields_summary(example) == (
        "Example(name='a', values=[64] int64 from 0 to 63, many=64 numbers from 0 to 1, few=(1, 2), "
        "by_group={'agent': [2, 3] float32 from 1 to 1})"
    )


def printed() -> list[object]:
    """What holds arrays of 64 numbers and is printed by users: of decoders, tests, networks, steps and leagues."""
    x = np.random.default_rng(0).standard_normal((200, 64))
    decoder = fit_linear(x, x[:, 0], "regression").decoder(
        site="agent/actor/hidden_1", agent="agent_0", t=None, offset=0, label="x", classes=()
    )
    with mnb.vector_env("mpe/simple_spread", 64) as envs:
        step = envs.reset(seed=0)
        group = step.groups["agent"]
    return [
        decoder,
        decoder.direction(),
        decoder.direction().steer(),
        mnb.Erase("agent/actor/hidden_1", (decoder.direction(), decoder.direction(kind="filter"))),
        UsageTest("erase", *[0.0] * 5, 1.0, None, None, *[0.0] * 3, random=tuple(x[0].tolist())),
        UntrainedTuning(19, x[0], 3, 0.1, 0.0, 0.2),
        step,
        group,
        PayoffTable.empty([f"player_{k}" for k in range(64)]),
        Node("agent_0", "agent/actor/hidden_1", (1,), basis=(tuple(x[0].tolist()),)),
    ]


@pytest.mark.parametrize("item", printed(), ids=lambda item: type(item).__name__)
def test_what_holds_arrays_prints_shapes_and_not_64_numbers(item: object) -> None:
    assert len(NUMBER.findall(repr(item))) < 40
    assert len(repr(item)) < 1500


def test_a_notebook_shows_the_fields_as_a_table_and_each_group_in_its_line() -> None:
    with mnb.vector_env("mpe/simple_tag", 2) as envs:
        page = envs.reset(seed=0)._repr_html_()
    rows = dict(re.findall(r"<tr><th[^>]*>(.*?)</th><td[^>]*>(.*?)</td></tr>", page))
    assert list(rows) == [
        *("groups[&#39;adversary&#39;]", "groups[&#39;agent&#39;]", "done", "episode_seed", "state", "final_state")
    ]
    assert rows["done"] == "[2] bool, 0 of 2 true" and "observation=[2, 3, 16] float32" in next(iter(rows.values()))
