"""What a cell shows of an environment, its spec and a registry: names and sizes, a line or a row for each group."""

from __future__ import annotations

import re

import marlnb as mnb
from marlnb.specs import ActionSpec, EnvSpec, GroupSpec, ObservationSpec
from tests.display.pages import HOSTILE


def test_a_spec_prints_a_line_for_each_group() -> None:
    with mnb.vector_env("mpe/simple_speaker_listener", 2) as envs:
        lines, shown = repr(envs.spec).splitlines(), repr(envs)
        page, pages = envs.spec._repr_html_(), envs._repr_html_()
    assert lines[:3] == [
        "<EnvSpec mpe/simple_speaker_listener: episodes of at most 25 steps, all agents act at the same time",
        "  speaker: speaker_0 (1); observation 3: goal_red, goal_green, goal_blue; "
        "action one of 3: say_0, say_1, say_2",
        "  listener: listener_0 (1); observation 11: velocity_x, velocity_y, landmark_0_dx, landmark_0_dy, "
        "landmark_1_dx, landmark_1_dy, ..., message_2; action one of 5: no_op, left, right, down, up",
    ]
    assert lines[3].startswith("  labels: ") and ", goal, goal_distance" in lines[3] and len(lines) == 4
    assert shown == "<2 envs of mpe/simple_speaker_listener on cpu: speaker (1), listener (1)>"
    cells = re.findall(r"<td[^>]*>(.*?)</td>", page)
    assert cells[4:6] == ["listener", "listener_0 (1)"] and "one of 3: say_0, say_1, say_2" in cells
    goal = cells.index("goal")
    assert cells[goal : goal + 3] == ["goal", "", "red, green, blue"] and "2 envs on cpu" in pages


def test_kinds_of_actions_and_observations() -> None:
    image, speed = ObservationSpec((8, 8, 3), "uint8"), ActionSpec("continuous", low=(-1.0, 0.0), high=(1.0, 2.0))
    eye = GroupSpec("eye", tuple(f"eye_{k}" for k in range(9)), image, speed)
    hand = GroupSpec("hand", ("hand_0",), ObservationSpec((2,)), ActionSpec("multi_discrete", (3, 4)), True)
    lines = repr(EnvSpec("mine", (eye, hand), state_shape=(5,), simultaneous=False)).splitlines()
    assert lines == [
        "<EnvSpec mine: episodes without a step limit, agents take turns, global state of shape [5]",
        "  eye: eye_0, eye_1, eye_2, eye_3, ..., eye_8 (9); observation 8 x 8 x 3; action continuous, 2 from -1 to 2",
        "  hand: hand_0 (1); observation 2; action 2 choices, 7 options in total, masked>",
    ]
    assert repr(eye).startswith("<GroupSpec eye: eye_0, ") and "8 x 8 x 3" in eye._repr_html_()


def test_names_from_outside_are_text() -> None:
    action = ActionSpec("discrete", (1,), names=(HOSTILE,))
    group = GroupSpec(HOSTILE, (HOSTILE,), ObservationSpec((1,), names=(HOSTILE,)), action)
    for page in (EnvSpec(HOSTILE, (group,))._repr_html_(), group._repr_html_()):
        assert "&lt;img" in page and not re.search(r"<(img|script)", page)


def test_a_registry_prints_its_names() -> None:
    assert re.fullmatch(r"<\d+ algorithms: a2c, .*mappo, .*vdn>", repr(mnb.ALGORITHMS))
