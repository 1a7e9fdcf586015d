"""A batched environment of one's own: seekers chase a hider on a square. Every env is a row of a tensor."""

from __future__ import annotations

import torch

import marlnb as mnb

MOVES = ("stay", "left", "right", "down", "up")


@mnb.environment("examples/chase")
class Chase(mnb.TensorEnv):
    """The hider earns 1 for every step, the seekers earn 10 together when one of them comes near."""

    n_seekers: int = mnb.option(3, help="number of seekers", ge=1, le=100)
    reach: float = mnb.option(0.1, help="distance at which the hider is caught", unit="of the square's side", gt=0)
    max_steps: int = mnb.option(50, help="length of an episode", unit="steps", ge=1)

    def groups(self):
        features = ("x", "y", "other_x", "other_y")  # the other: the hider, or the seeker that is nearest
        return [
            mnb.agent_group("seeker", self.n_seekers, observes=features, acts=MOVES),
            mnb.agent_group("hider", 1, observes=features, acts=MOVES),
        ]

    def start(self, draw):
        return {"position": draw.uniform(self.n_seekers + 1, 2)}  # the hider is the last

    def step(self, state, action, draw):
        move = torch.cat((action["seeker"], action["hider"]), 1)  # [env, agent]
        delta = torch.stack(((move == 2).float() - (move == 1).float(), (move == 4).float() - (move == 3).float()), -1)
        state = {"position": (state["position"] + 0.05 * delta).clamp(0, 1)}
        caught = self.terminated(state)[:, None].float()
        return state, {"seeker": (10 * caught / self.n_seekers).expand(-1, self.n_seekers), "hider": 1 - caught}

    def distance(self, state):
        return (state["position"][:, :-1] - state["position"][:, -1:]).norm(dim=-1)  # [env, seeker]

    def terminated(self, state):
        return self.distance(state).amin(1) < self.reach

    def observe(self, state):
        seekers, hider = state["position"][:, :-1], state["position"][:, -1:]
        nearest = self.distance(state).argmin(1)[:, None, None].expand(-1, 1, 2)
        return {
            "seeker": torch.cat((seekers, hider.expand_as(seekers)), -1),
            "hider": torch.cat((hider, seekers.gather(1, nearest)), -1),
        }

    def draw_picture(self, state):
        return mnb.draw_discs(state["position"][0].numpy(), ["#d55e00"] * self.n_seekers + ["#0072b2"])
