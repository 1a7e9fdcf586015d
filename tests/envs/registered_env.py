"""An environment as a user registers it: one function, in a file without torch, which its workers import."""

from __future__ import annotations

from marlnb.envs.custom import environment
from tests.envs.sample_envs import Scripted


@environment("test/scripted")
def scripted(keeps_dead: bool = False) -> Scripted:
    """Three agents that come and go."""
    return Scripted(keeps_dead)
