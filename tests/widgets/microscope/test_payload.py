"""What is sent to the browser equals the recording, `mnb.attribute` and the environment's positions."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

import marlnb as mnb
from marlnb.errors import RecordingError
from marlnb.recording.tools.recorded_policies import source_of
from marlnb.widgets.microscope.attribution import attribute_episode, attribution_payload, mean_observations
from marlnb.widgets.microscope.decoded_concepts import decoded_concepts
from marlnb.widgets.microscope.episode_view import read_episode
from marlnb.widgets.microscope.frames import recorded_frames, replayed_frames
from marlnb.widgets.microscope.objects import bodies_of
from marlnb.widgets.microscope.payload import quantise, side_payload

SITE = "listener/actor/hidden_1"


def _floats(data: bytes, *shape: int) -> np.ndarray:
    return np.frombuffer(data, "<f4").reshape(shape)


def test_units_come_back_within_half_a_step_of_a_byte(listener: mnb.Recording) -> None:
    view = read_episode(listener, 2)
    sent = side_payload(view, "a title", ["actor/hidden_1"])["units"]["actor/hidden_1"]["listener_0"]
    low, high = (_floats(sent[name], 64) for name in ("low", "high"))
    back = low + np.frombuffer(sent["quantised"], np.uint8).reshape(64, 25).T / 255 * (high - low)
    truth = listener.file[f"activations/{SITE}"][50:75, 0]
    assert (np.abs(back - truth) <= (high - low) / 510 + 1e-6).all()


def test_nan_is_sent_as_0() -> None:
    bytes_, low, high = quantise(np.array([[np.nan, 2.0], [1.0, 2.0]], np.float32))
    assert bytes_.tolist() == [[0, 0], [255, 0]] and low.tolist() == [0, 2] and high.tolist() == [1, 2]


def test_rewards_and_choices_are_the_recordings(tag: mnb.Recording) -> None:
    view = read_episode(tag, 3)
    agents = {agent["name"]: agent for agent in side_payload(view, "", [])["agents"]}
    rows = tag.file["steps/episode"][:] == 3
    for k in range(3):
        sent = agents[f"adversary_{k}"]
        np.testing.assert_array_equal(_floats(sent["reward"], 25), tag.file["steps/adversary/reward"][:][rows, k])
        np.testing.assert_array_equal(_floats(sent["taken"], 25), tag.file["steps/adversary/action"][:][rows, k])
    assert agents["agent_0"]["choice_names"] == ["no_op", "left", "right", "down", "up"]


def test_the_drawn_attribution_equals_mnb_attribute(listener: mnb.Recording) -> None:
    view = read_episode(listener, 4)
    source = source_of(listener, None)
    feature_objects = next(replayed_frames(view, source, images=False)).feature_objects
    mean = {name: listener.steps(name, "observation").to_numpy().mean(axis=0) for name in ("speaker", "listener")}
    attribution = attribute_episode(view, source.policies(130), baseline=mean_observations(view))
    sent = attribution_payload(attribution, feature_objects)["agents"]["listener_0"]
    truth = mnb.attribute(listener, group="listener", baseline=mean, episodes=[4], progress=False)
    values = _floats(sent["values"], 25, 11)
    for k, name in enumerate(sent["names"]):
        np.testing.assert_allclose(values[:, k], truth.values[:, 0, truth.feature_names.index(name)], atol=1e-5)
    heard = [truth.feature_names.index(f"message_{k}") for k in range(3)]
    on_speaker = _floats(sent["by_object"], 25, len(sent["objects"]))[:, sent["objects"].index("speaker_0")]
    np.testing.assert_allclose(on_speaker, np.abs(truth.values[:, 0, heard]).sum(-1), atol=1e-4)


def test_features_describe_the_bodies_in_their_names(tag: mnb.Recording) -> None:
    features = ["velocity_x", "landmark_1_dy", "other_adversary_0_dx", "other_adversary_1_dx", "agent_0_velocity_x"]
    assert tag.experiment is not None
    scenario = tag.experiment.env.scenario()  # type: ignore[attr-defined]
    bodies = bodies_of(scenario, "adversary_1", features)
    assert bodies == ["adversary_1", "landmark_1", "adversary_0", "adversary_2", "agent_0"]
    assert bodies_of(scenario, "adversary_1", ["goal_red", "nearest_landmark_0_dx"]) == [None, None]


def test_objects_are_at_their_positions_in_the_picture(listener: mnb.Recording) -> None:
    view = read_episode(listener, 1)
    frames = list(replayed_frames(view, source_of(listener, None)))
    assert [frame.index for frame in frames] == list(range(25))
    for frame in frames[::8]:
        image = np.asarray(Image.open(io.BytesIO(frame.image)).convert("RGB")).astype(int)
        assert frame.positions is not None
        for name in ("landmark_0", "landmark_1", "landmark_2"):  # red, green, blue; the listener may stand upon one
            x, y = frame.positions[name]
            pixel = image[round(y * 320), round(x * 320)]
            assert pixel.min() < 200, f"{name} at {frame.positions[name]} is {pixel}"


def test_replayed_frames_equal_recorded_frames(listener: mnb.Recording, tmp_path_factory: object) -> None:
    run = listener.run_path
    assert run is not None
    with mnb.record(run, episodes=2, sites=[], frames=12, name="framed", progress=False) as framed:
        view = read_episode(framed, 1)
        recorded = list(recorded_frames(view))
        replayed = {frame.index: frame.image for frame in replayed_frames(view, source_of(framed, None))}
    assert [frame.index for frame in recorded] == [0, 12, 24]
    assert all(frame.image == replayed[frame.index] for frame in recorded)


def test_an_episode_without_all_actions_cannot_be_replayed(tag: mnb.Recording) -> None:
    run = tag.run_path
    assert run is not None
    with mnb.record(run, episodes=1, agents="agent_0", name="alone", progress=False) as alone:
        with pytest.raises(RecordingError, match=r"has no actions of adversary_0, adversary_1, adversary_2"):
            list(replayed_frames(read_episode(alone, 0), source_of(alone, None)))


def test_concepts_are_what_the_decoder_says(listener: mnb.Recording) -> None:
    decoding = mnb.decode(listener, site=SITE, label="goal", folds=2, n_shuffles=2, progress=False)
    (concept,) = decoded_concepts(read_episode(listener, 5), decoding)
    x = listener.file[f"activations/{SITE}"][125:150, 0].astype(float)
    decoder = decoding.decoders[0]
    for t in (0, 10, 24):
        odds = [float(np.exp(x[t] @ weights + bias)) for weights, bias in zip(decoder.weights, decoder.intercept)]
        np.testing.assert_allclose(concept.decoded[t], np.array(odds) / sum(odds), rtol=1e-6)
    goal = listener.file["labels/goal"][125]
    assert concept.classes[int(concept.truth[0])] == ("red", "green", "blue")[goal]
