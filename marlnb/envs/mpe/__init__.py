"""MPE's scenarios, native and batched: importing this package registers them. Free of torch until one is built."""

from __future__ import annotations

from marlnb.envs.mpe import simple as simple
from marlnb.envs.mpe import simple_adversary as simple_adversary
from marlnb.envs.mpe import simple_crypto as simple_crypto
from marlnb.envs.mpe import simple_push as simple_push
from marlnb.envs.mpe import simple_reference as simple_reference
from marlnb.envs.mpe import simple_speaker_listener as simple_speaker_listener
from marlnb.envs.mpe import simple_spread as simple_spread
from marlnb.envs.mpe import simple_tag as simple_tag
from marlnb.envs.mpe import simple_world_comm as simple_world_comm
