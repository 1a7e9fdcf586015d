"""Groups of different training runs against each other, on tag with players whose order of strength is known."""

from __future__ import annotations

import torch

from benchmarks.verify.cross_play import flee, payoffs, steer, text, with_references
from marlnb.envs.regroup import build_env
from marlnb.experiment import Experiment
from marlnb.models.policies.scripted import NoOpPolicy


def test_a_row_is_the_first_group_and_a_column_the_second() -> None:
    experiment = Experiment.compose("env=mpe/simple_tag", "algorithm=ippo")
    with build_env(experiment, 50) as env:
        still = {"still": {group.name: NoOpPolicy(group) for group in env.spec.groups}}
        returns = payoffs(env, with_references(env, still), 50)
        names = ["random", "scripted", "still"]
        assert list(returns) == [(one, other) for one in names for other in names]
        # a hunter that runs at its prey beats one that stands; a prey that runs away beats both that do not
        assert returns["scripted", "still"][0] > 10 * max(1.0, returns["still", "scripted"][0])
        assert returns["scripted", "scripted"][1] > returns["scripted", "random"][1] + 20
        assert returns["scripted", "still"][1] <= -returns["scripted", "still"][0]  # it pays what each of them gains
        lines = text(env, returns).splitlines()
    assert lines[0] == "| adversary \\ agent | random | scripted | still |"
    hunters, prey = returns["scripted", "still"]
    assert lines[3].startswith("| scripted |") and lines[3].endswith(f"| {hunters:.1f} / {prey:.1f} |")


def test_the_scripted_players_steer() -> None:
    assert steer(torch.tensor([[2.0, 1.0], [-2.0, 1.0], [1.0, -2.0], [1.0, 2.0]])).tolist() == [2, 1, 3, 4]
    observation = torch.zeros(14)
    observation[8:14] = torch.tensor([1.0, 0.0, 2.0, 0.0, 3.0, 0.1])  # all hunters on the right
    assert flee(observation, None, None).item() == 1  # type: ignore[arg-type]  # it does not read the group
    observation[2] = -1.0  # over the left edge
    assert flee(observation, None, None).item() == 2  # type: ignore[arg-type]
