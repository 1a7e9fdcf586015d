"""LabelledEnv: notes the environment's labels while a training run is repeated; rollouts do not hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from marlnb.envs.vector import Step, VectorEnv


class LabelledEnv(VectorEnv):
    """An environment, and the labels of some of its envs before each step.

    Args:
        env: it belongs to the caller.
        envs: numbers of the envs.
    """

    def __init__(self, env: VectorEnv, envs: Sequence[int]) -> None:
        self.env, self._envs = env, torch.tensor(envs, device=env.device)
        self.spec, self.n_envs, self.device = env.spec, env.n_envs, env.device
        self._steps: list[dict[str, Tensor]] = []

    def take(self) -> dict[str, Tensor]:
        """`labels/<name>` of the steps since the last call, `[env, time]` or `[env, time, agent]`.

        Raises:
            EnvError: a value of a label is not the index of a class.
        """
        steps, self._steps = self._steps, []
        labels = {label: torch.stack([step[label.name] for step in steps], 1) for label in self.spec.labels}
        for label, values in labels.items():
            label.check_classes(values)
        return {f"labels/{label.name}": values for label, values in labels.items()}

    def reset(self, seed: int) -> Step:
        return self.env.reset(seed)

    def step(self, actions: Mapping[str, Tensor]) -> Step:
        if self.spec.labels:
            labels = self.env.labels()
            self._steps.append({name: value.index_select(0, self._envs) for name, value in labels.items()})
        return self.env.step(actions)

    def state_dict(self) -> dict[str, Tensor] | None:
        return self.env.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> Step:
        return self.env.load_state_dict(state)

    def labels(self) -> dict[str, Tensor]:
        return self.env.labels()
