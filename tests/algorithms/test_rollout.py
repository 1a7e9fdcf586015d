"""A Rollout reads like a TensorDict, and becomes one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from marlnb.algorithms.rollout import Rollout


def test_a_rollout_reads_like_a_tensordict() -> None:
    reward = torch.arange(6.0).reshape(2, 3, 1)
    rollout = Rollout({"is_init": reward > 0, "next": {"a": {"reward": reward}}}, (2, 3))
    assert rollout.batch_size.numel() == 6 and rollout["next", "a", "reward"] is reward
    assert list(rollout["next"]["a"].keys()) == ["reward"] and rollout.get(("b", "state"), None) is None
    with pytest.raises(KeyError):
        rollout["b"]
    shallow, deep = rollout.clone(recurse=False), rollout.clone()
    shallow["next", "a", "reward"] = reward + 1  # another tensor under the name, in the copy only
    rollout["next"]["a"]["reward"] += 10  # in place, in what the copies share
    assert rollout["next", "a", "reward"] is reward and shallow["next", "a", "reward"][0, 0] == 1
    assert deep["next", "a", "reward"][0, 0] == 0 and shallow["is_init"] is rollout["is_init"]
    theirs = rollout.to_tensordict()
    assert theirs.batch_size == (2, 3) and theirs["next", "a", "reward"] is reward
    np.testing.assert_array_equal(theirs["next", "a", "reward"].flatten().numpy(), np.arange(10.0, 16.0))
    assert repr(rollout) == "<Rollout [env 2, time 3]: is_init, next/a/reward>"
