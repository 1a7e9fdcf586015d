"""MPE's scenarios, native and batched: importing this package registers them. Free of torch until one is built."""

from __future__ import annotations

from marlnb.envs.mpe import simple_speaker_listener as simple_speaker_listener
from marlnb.envs.mpe import simple_spread as simple_spread
