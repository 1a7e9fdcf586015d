"""VMAS's scenarios (Bettini et al. 2022, arXiv:2207.03530), as `vmas/<scenario>`: importing this registers them."""

from __future__ import annotations

from marlnb.envs.vmas.config import VmasConfig as VmasConfig
