"""The agents of data/ for the pictures of the pages, and the register of these pictures."""

from __future__ import annotations

import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import torch
from matplotlib.figure import Figure

import marlnb as mnb
from docs.images.drawing import terminal
from marlnb.training.collect.episodes import TimeStep

ROOT = Path(__file__).resolve().parents[2]
MAX_LETTERS = 120  # of a line in a terminal


class Trained:
    """The agents of data/ in a folder that may be written to, with recordings; each is made when first used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, name: str, copy: str | None = None) -> mnb.Run:
        """A run of data/ that may be written to."""
        path = self.folder / "runs" / (copy or name)
        if not path.exists():
            shutil.copytree(ROOT / "data" / name, path)
        return mnb.Run.open(path)

    @cached_property
    def talk(self) -> mnb.Recording:
        return mnb.record(self.run("speaker_listener"), episodes=200, progress=False)

    @cached_property
    def tag(self) -> mnb.Recording:
        run = self.run("simple_tag")
        names = run.spec.group("adversary").observation.names
        dx, dy = (names.index(f"agent_0_{axis}") for axis in ("dx", "dy"))

        def prey_direction(step: TimeStep) -> torch.Tensor:
            """0 is east, 2 north, 4 west, 6 south: `[env, adversary]`."""
            observed = step.observation["adversary"]
            turns = torch.atan2(observed[..., dy], observed[..., dx]) / (2 * torch.pi)
            return (turns * 8).round().long() % 8

        labels = {"adversary/prey_direction": prey_direction}
        return mnb.record(run, episodes=120, seed=7000, labels=labels, progress=False)

    def shell(self, *commands: str) -> Figure:
        """A terminal with the commands and what they print."""
        lines = []
        for command in commands:
            program, *arguments = shlex.split(command)
            path = Path(sys.executable).parent / program
            result = subprocess.run([path, *arguments], cwd=self.folder, text=True, capture_output=True)
            lines += [f"$ {command}", *(result.stdout + result.stderr).rstrip().split("\n"), ""]
        text = "\n".join(lines)
        for private, public in ((self.folder, "~/project"), (ROOT, "~/marlnb"), (platform.node(), "laptop")):
            text = re.sub(rf"{re.escape(str(private))}\b", public, text)
        shown = (line if len(line) <= MAX_LETTERS else f"{line[: MAX_LETTERS - 2]} …" for line in text.split("\n"))
        return terminal("\n".join(shown))


FIGURES: dict[str, Callable[[Trained], Figure]] = {}
"""By page: its name without `.md`."""


def of_page(function: Callable[[Trained], Figure]) -> Callable[[Trained], Figure]:
    """Registers the figure of the page that the function is named after."""
    FIGURES[function.__name__.replace("_", "-")] = function
    return function
