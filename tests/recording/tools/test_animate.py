"""animate: the pictures are those of the episode, in each format, and names in them are text."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence

from marlnb.envs.games.probes import ActionConfig
from marlnb.errors import ConfigError, EnvBuildError, RecordingError
from marlnb.models.hooks.edits import Ablate
from marlnb.models.networks.configs.mlp import MLPConfig
from marlnb.recording.capture.recorder import record
from marlnb.recording.tools.animate import animate
from marlnb.recording.tools.animation import CAPTION_HEIGHT, Animation
from marlnb.training.runs.run import Run
from tests.recording.runs import make_run

TALKERS = Path(__file__).parents[3] / "data" / "speaker_listener"
HOSTILE = "<img src=x onerror=alert(1)>\"'</script><script>alert(2)</script>"


@pytest.fixture(scope="module")
def talkers(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs") / "talkers"
    shutil.copytree(TALKERS, folder)
    return Run.open(folder)


@pytest.fixture(scope="module")
def episode(talkers: Run) -> Animation:
    return animate(talkers, 3, max_width=120)


class Tags(HTMLParser):
    """Collects tags, and the text of the title."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def named(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attributes for name, attributes in self.tags if name == tag)


def test_the_pictures_are_those_of_the_episode_that_evaluation_plays(talkers: Run, episode: Animation) -> None:
    with talkers.build_env(1) as env:
        step, policies = env.reset(1003), talkers.policies()
        for t in range(3):
            picture = Image.fromarray(env.render(0)).resize((120, 120), Image.Resampling.BOX)
            np.testing.assert_array_equal(episode.frame(t), np.asarray(picture))
            acts = {
                name: policies[name].act(group.observation, explore=False).action for name, group in step.groups.items()
            }
            step = env.step(acts)
    assert len(episode) == 26 and "seed 1003" in episode.title and episode.captions[0].startswith("t = 0 ")


def test_the_last_picture_is_that_of_the_state_after_the_last_step(talkers: Run, episode: Animation) -> None:
    longer = animate(talkers, 3, env=replace(talkers.experiment.env, max_cycles=26), max_width=120)  # type: ignore[call-arg]
    assert len(longer) == 27 and episode.captions[25] == longer.captions[25]
    np.testing.assert_array_equal(episode.frame(25), longer.frame(25))


def test_a_gif_plays_every_step_with_its_caption(episode: Animation, tmp_path: Path) -> None:
    path = episode.save(tmp_path / "episode.gif")
    with Image.open(path) as gif:
        assert [frame.size for frame in ImageSequence.Iterator(gif)] == [(120, 120 + CAPTION_HEIGHT)] * 26
        assert gif.info["duration"] == 100
    assert "data:image/gif;base64" in episode._repr_html_()


def test_the_page_of_html_has_every_picture_and_needs_nothing_else(episode: Animation, tmp_path: Path) -> None:
    page = Tags(episode.save(tmp_path / "episode.html").read_text())
    (data,) = (attributes for attributes in page.named("div") if "data-frames" in attributes)
    assert len(json.loads(data["data-frames"] or "")) == 26
    assert json.loads(data["data-captions"] or "") == episode.captions
    assert not any("http" in (value or "") for _, attributes in page.tags for value in attributes.values())


def test_names_are_text_in_the_page_and_in_the_notebook(episode: Animation) -> None:
    buffer = io.BytesIO()
    Image.fromarray(episode.frame(0)).save(buffer, "PNG")
    hostile = Animation([buffer.getvalue()], [HOSTILE], title=HOSTILE, steps_per_s=10, note=HOSTILE)
    page, shown = Tags(hostile.html()), Tags(hostile._repr_html_())
    assert len([*page.named("script")]) == 1 and [*page.named("img")] == [{"id": "picture", "alt": HOSTILE}]
    assert HOSTILE in page.texts and "textContent = captions" in "".join(page.texts)
    assert not [*shown.named("script")] and len([*shown.named("img")]) == 1


def test_an_mp4_is_written_by_ffmpeg(episode: Animation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in, since ffmpeg need not be installed: it writes how many bytes of pictures it received."""
    tools = tmp_path / "tools"
    tools.mkdir()
    program = tools / "ffmpeg"
    program.write_text('#!/bin/sh\nfor last; do :; done\necho "$@" > "$last"\nwc -c >> "$last"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
    options, size = episode.save(tmp_path / "episode.mp4").read_text().splitlines()
    assert int(size) == 26 * 120 * (120 + CAPTION_HEIGHT) * 3 and "-s 120x142" in options and "-r 10" in options
    program.write_text("#!/bin/sh\ncat > /dev/null\necho no such codec >&2\nexit 1\n")
    with pytest.raises(ConfigError, match="no such codec"):
        episode.save(tmp_path / "other.mp4")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="needs ffmpeg"):
        episode.save(tmp_path / "third.mp4")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["episode.mp4", "tools"]


def test_a_recorded_episode_is_played_again_or_its_pictures_are_shown(talkers: Run) -> None:
    sampled = record(talkers, episodes=2, explore=True, seed=7, progress=False, name="sampled")
    again = animate(sampled, 1, max_width=120)
    assert len(again) == 26 and "episode 1 of sampled.h5" in again.title
    final = float(again.captions[-1].rsplit("listener ", 1)[1])
    assert final == pytest.approx(sampled.episodes.loc[1, "listener_0"], rel=1e-2)  # of three digits
    drawn = record(talkers, episodes=2, explore=True, seed=7, frames=1, progress=False, name="drawn")
    shown = animate(drawn, 1, max_width=120)
    for t in (0, 24):
        np.testing.assert_array_equal(shown.frame(t), again.frame(t))
    first = animate(drawn, 1, max_width=120, max_steps=5)
    assert len(first) == 5 and first.note == "the episode continues after these 5 pictures" and not shown.note
    with pytest.raises(RecordingError, match="no episode 9"):
        animate(sampled, 9)
    with pytest.raises(ConfigError, match="seed, edits: not valid for a recorded episode"):
        animate(sampled, 1, seed=3, edits=[Ablate("listener/actor/hidden_1")])


def test_an_edit_changes_what_is_shown(talkers: Run, episode: Animation) -> None:
    edited = animate(talkers, 3, edits=Ablate("listener/actor/hidden_2"), max_width=120, max_steps=8)
    assert len(edited) == 8 and "continues after these 8 steps" in edited.note and "with ablate" in edited.title
    np.testing.assert_array_equal(edited.frame(0), episode.frame(0))
    assert (edited.frame(7) != episode.frame(7)).any()


def test_what_cannot_be_shown_is_an_error(talkers: Run, tmp_path: Path, episode: Animation) -> None:
    run = make_run(tmp_path / "probe", ActionConfig(), MLPConfig(hidden=(4,)), MLPConfig(hidden=(4,)))
    with pytest.raises(EnvBuildError, match="cannot be rendered"):
        animate(run)
    with pytest.raises(ConfigError, match="steps_per_s above 0"):
        animate(talkers, steps_per_s=0)
    with pytest.raises(ConfigError, match=r"Valid: \.gif"):
        episode.save(tmp_path / "episode.webm")
