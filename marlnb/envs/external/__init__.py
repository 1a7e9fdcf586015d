"""Environments that live in other processes and own their loops: they ask for actions over a local socket."""

from __future__ import annotations

from marlnb.envs.external.config import ExternalConfig as ExternalConfig
from marlnb.envs.external.config import ExternalGroup as ExternalGroup
