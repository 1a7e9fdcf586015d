"""Animation: the pictures of one episode, as a GIF, an MP4 or a page of HTML with a slider."""

from __future__ import annotations

import base64
import io
import json
import shutil
import subprocess
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np
from markupsafe import Markup
from PIL import Image, ImageDraw, ImageFont

from marlnb.disk import replacing, writing
from marlnb.display.notebook_html import note_html, picture_html, title_html
from marlnb.errors import ConfigError, unknown

FORMATS = (".gif", ".mp4", ".html")
CAPTION_HEIGHT, CAPTION_SIZE = 22, 13  # pixels
INK, PAPER = (34, 34, 34), (255, 255, 255)
PLAYER = Markup(
    """<!doctype html>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
  body {{ font-family: sans-serif; margin: 12px; color-scheme: light dark }}
  img {{ max-width: 100%; display: block }}
  input {{ width: min(100%, {width}px) }}
</style>
<h1 style="font-size: 1.1em">{title}</h1>
<img id="picture" alt="{title}">
<p><input id="step" type="range" min="0" max="{last}" value="0" aria-label="step"></p>
<p><button id="play">pause</button> <span id="caption"></span></p>
<div id="episode" hidden data-frames="{frames}" data-captions="{captions}" data-interval="{interval_ms}"></div>
<script>
  const at = (id) => document.getElementById(id);
  const data = at("episode").dataset;
  const frames = JSON.parse(data.frames), captions = JSON.parse(data.captions);
  let playing = true;
  const show = () => {{
    const k = Number(at("step").value);
    at("picture").src = "data:image/png;base64," + frames[k];
    at("caption").textContent = captions[k];
  }};
  at("step").addEventListener("input", show);
  at("play").addEventListener("click", () => {{
    playing = !playing;
    at("play").textContent = playing ? "pause" : "play";
  }});
  setInterval(() => {{
    if (!playing) return;
    at("step").value = (Number(at("step").value) + 1) % frames.length;
    show();
  }}, Number(data.interval));
  show();
</script>
"""
)


class Animation:
    """The pictures of one episode.

    Attributes:
        title: the environment, the episode and the policies.
        captions: of each picture, one line.
        steps_per_s: how fast it plays.
        note: what is missing, as the rest of a longer episode; else empty.
    """

    def __init__(
        self, frames: Sequence[bytes], captions: Sequence[str], *, title: str, steps_per_s: float, note: str = ""
    ) -> None:
        """
        Args:
            frames: PNG pictures of one size.
        """
        self._frames, self.captions = list(frames), list(captions)
        self.title, self.steps_per_s, self.note = title, steps_per_s, note

    def __len__(self) -> int:
        return len(self._frames)

    def frame(self, index: int) -> np.ndarray:
        """A picture, `[height, width, 3]` uint8, without its caption."""
        return np.asarray(Image.open(io.BytesIO(self._frames[index])).convert("RGB"))

    def gif(self) -> bytes:
        """An animated GIF with the captions below the pictures; it repeats forever."""
        pictures = [self._captioned(k) for k in range(len(self))]
        buffer = io.BytesIO()
        pictures[0].save(
            buffer,
            format="GIF",
            save_all=True,
            append_images=pictures[1:],
            duration=round(1000 / self.steps_per_s),
            loop=0,
        )
        return buffer.getvalue()

    def html(self) -> str:
        """A page that needs nothing else: the pictures with a slider and a button."""
        page: str = PLAYER.format(
            title=self.title,
            width=self.frame(0).shape[1],
            last=len(self) - 1,
            frames=json.dumps([base64.b64encode(frame).decode() for frame in self._frames]),
            captions=json.dumps(self.captions),
            interval_ms=round(1000 / self.steps_per_s),
        )
        return str(page)

    def save(self, path: str | PathLike[str]) -> Path:
        """Writes the episode to a file; its extension, .gif, .mp4 or .html, sets the format.

        Raises:
            ConfigError: another extension; an MP4 where no ffmpeg is installed, or where ffmpeg fails.
            DiskError: the file cannot be written.
        """
        target = Path(path)
        ending = target.suffix.lower()
        if ending not in FORMATS:
            raise ConfigError(unknown("ending of an animation's file", ending or target.name, FORMATS))
        with writing(target), replacing(target) as part:
            if ending == ".mp4":
                self._write_mp4(part)
            else:
                part.write_bytes(self.gif() if ending == ".gif" else self.html().encode())
        return target

    def __repr__(self) -> str:
        seconds = len(self) / self.steps_per_s
        return f"<Animation of {self.title}: {len(self)} pictures, {seconds:.3g} s{self.note and '; ' + self.note}>"

    def _repr_html_(self) -> Markup:
        """The GIF, which also plays in notebooks that are not trusted, and on pages made of them."""
        gif = base64.b64encode(self.gif()).decode()
        note = "; ".join(filter(None, [self.note, "save('episode.html') writes a page with a slider"]))
        return title_html(self.title) + picture_html(gif, "gif", self.title) + note_html(note)

    def _captioned(self, index: int) -> Image.Image:
        """A picture with its caption, of even width and height, as video needs."""
        picture = Image.open(io.BytesIO(self._frames[index])).convert("RGB")
        width, height = picture.width + picture.width % 2, picture.height + picture.height % 2
        page = Image.new("RGB", (width, height + CAPTION_HEIGHT), PAPER)
        page.paste(picture)
        font = ImageFont.load_default(CAPTION_SIZE)
        ImageDraw.Draw(page).text((4, height + 3), self.captions[index], fill=INK, font=font)
        return page

    def _write_mp4(self, path: Path) -> None:
        ffmpeg = shutil.which("ffmpeg")
        if ffmpeg is None:
            raise ConfigError(
                "an MP4 needs ffmpeg, which is not installed; install it, or save the episode as .gif or .html"
            )
        pictures = [np.asarray(self._captioned(k)) for k in range(len(self))]
        height, width = pictures[0].shape[:2]
        command = [
            *(ffmpeg, "-loglevel", "error", "-y", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"),
            *("-r", f"{self.steps_per_s:g}", "-i", "-", "-pix_fmt", "yuv420p", "-movflags", "+faststart"),
            *("-f", "mp4", str(path)),
        ]
        done = subprocess.run(command, input=b"".join(p.tobytes() for p in pictures), capture_output=True, check=False)
        if done.returncode:
            raise ConfigError(f"ffmpeg could not write {path.name}: {done.stderr.decode(errors='replace').strip()}")
