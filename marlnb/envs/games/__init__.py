"""Matrix games and probes: environments so small that the best return and its values are known. Free of torch until
one is built."""

from __future__ import annotations

from marlnb.envs.games import matrix as matrix
from marlnb.envs.games import probes as probes
from marlnb.envs.games import tree as tree
