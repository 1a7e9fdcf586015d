"""What every test runs under: no screen, no network loggers, one torch thread."""

from __future__ import annotations

import os

import torch

os.environ.update(
    MPLBACKEND="Agg",
    SDL_VIDEODRIVER="dummy",
    SDL_AUDIODRIVER="dummy",
    PYGAME_HIDE_SUPPORT_PROMPT="1",
    WANDB_MODE="offline",
    JUPYTER_PLATFORM_DIRS="1",
)
torch.set_num_threads(1)
