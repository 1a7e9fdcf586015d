"""The cell that shows in a microscope what is shown in it now."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from marlnb.analysis.decoding.result import Decoding
from marlnb.widgets.microscope.scope import Scope


def code_of(recording: Path, episode: int, t: int, scope: Scope, decodings: Sequence[Decoding]) -> str:
    options = {"episode": episode, "t": t, "layer": scope.layer, "order": scope.order}
    told = ", ".join(f"{name}={value!r}" for name, value in options.items())
    agents = f", agents={scope.agents!r}" if scope.agents else ""
    lines = [f"recording = mnb.Recording.open({str(recording)!r})"]
    lines.append(f"scope = mnb.microscope(recording, {told}{agents})")
    lines += [f"scope.decode({one.label!r}, site={one.site!r})" for one in decodings]
    return "\n".join(["import marlnb as mnb", *lines, "scope"])
