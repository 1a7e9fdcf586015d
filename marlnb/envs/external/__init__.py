"""Environments that run in other processes, own their loops, and ask for actions over a local socket."""

from __future__ import annotations

from marlnb.envs.external.config import ExternalConfig as ExternalConfig
from marlnb.envs.external.options import ExternalGroup as ExternalGroup
