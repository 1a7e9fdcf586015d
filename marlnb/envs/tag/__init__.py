"""WarpDrive's game of tag, as functions on tensors: importing this package registers it. Free of torch until built."""

from __future__ import annotations

from marlnb.envs.tag import config as config
