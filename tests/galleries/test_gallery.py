"""The gallery's table and card, what another person's entry may contain, and an entry that is made from its recipe."""

from __future__ import annotations

import json
import resource
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import marlnb as mnb
from marlnb.cli import main
from marlnb.errors import ConfigError, RunError, UnknownNameError
from marlnb.galleries.add import add
from marlnb.galleries.card import CARD, Card, hashes
from marlnb.galleries.check import compare
from marlnb.galleries.entry import Entry
from marlnb.galleries.folders import CHECKOUT
from marlnb.galleries.make import make
from marlnb.galleries.recipe import RECIPE, Recipe

TALK = CHECKOUT / "speaker_listener"
RECIPE_TEXT = """
title: a tiny one
summary: few frames
kind: cooperative
train: >-
  env=mpe/simple_speaker_listener algorithm=mappo model.hidden=[8] n_envs=4 rollout_steps=25 frames=400
  checkpoint_every=1 keep_checkpoints=0 evaluation_episodes=4 seed=3 tuned=false
keep: [1, 4]
keep_rows: 2
episodes: 8
recording: {episodes: 4, values: false}
analysed: {episodes: 2}
expected: {listener: [-100, 0]}
findings:
  - claim: The listener does not listen.
    analysis: intervene
    options: {edits: [{edit: permute_channel, site: listener}], episodes: 6}
    expected: {arms.0.effects.0.difference: [-100, 100]}
limits: [It shows nothing.]
"""


@pytest.fixture(autouse=True)
def own_gallery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARLNB_DATA_DIR", str(tmp_path / "home"))
    return tmp_path / "home" / "gallery"


@pytest.fixture
def made(tmp_path: Path) -> Entry:
    """A copy of an entry, as another person sends it."""
    return Entry(TALK).copy(tmp_path / "sent" / "talk")


def test_an_entry_is_opened_by_name_evaluated_and_recorded_in_a_copy(tmp_path: Path) -> None:
    entry = mnb.gallery("speaker_listener")
    (score,) = [score for score in entry.card.final_scores if score.name == "listener"]
    again = mnb.evaluate(entry.run, episodes=entry.card.episodes, seed=entry.card.seed)
    assert again.return_mean["listener"] == pytest.approx(score.mean, abs=1e-3)
    assert score.low < score.mean < score.high
    copy = entry.copy(tmp_path / "mine")
    assert hashes(copy.path) == hashes(entry.path)
    with mnb.record(copy.run, episodes=2, progress=False) as recording:
        assert recording.path.parent == tmp_path / "mine" / "recordings"
    with pytest.raises(RunError, match="exists already"):
        entry.copy(tmp_path / "mine")


def test_a_copy_that_exists_is_opened_on_request(tmp_path: Path) -> None:
    entry = mnb.gallery("speaker_listener")
    first = entry.copy(tmp_path / "mine", exist="open")
    (first.path / "notes.json").write_text('{"note": "of mine"}')
    again = entry.copy(tmp_path / "mine", exist="open")
    assert (again.path / "notes.json").exists() and again.run.checkpoints == first.run.checkpoints
    with pytest.raises(RunError, match="is not a copy of spread"):
        mnb.gallery("spread").copy(tmp_path / "mine", exist="open")
    with pytest.raises(ConfigError, match="exist must be"):
        entry.copy(tmp_path / "other", exist="replace")  # type: ignore[arg-type]


def test_a_copy_is_made_where_a_batch_job_has_written_its_files(tmp_path: Path) -> None:
    entry, mine = mnb.gallery("speaker_listener"), tmp_path / "mine"
    mine.mkdir()
    (mine / "job.json").write_text("{}")
    for _ in range(2):
        assert entry.copy(mine, exist="open").path == mine
    assert (mine / "job.json").read_text() == "{}" and set(hashes(entry.path).items()) <= set(hashes(mine).items())
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / RECIPE).write_text("of another entry")
    with pytest.raises(RunError, match="exists already"):
        entry.copy(theirs)


def test_a_copy_that_fails_leaves_nothing(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, limits[1]))  # as a disk that is full
    try:
        with pytest.raises(RunError, match=r"speaker_listener cannot be copied to .*mine: .*File too large"):
            mnb.gallery("speaker_listener").copy(tmp_path / "mine", exist="open")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.glob("*mine*"))


def test_a_name_that_does_not_exist_is_an_error_that_lists_the_others() -> None:
    with pytest.raises(UnknownNameError, match="speaker_listener"):
        mnb.gallery("speaker_lisener")
    with pytest.raises(UnknownNameError, match="speaker_listener"):
        mnb.gallery(["speaker_listener"])  # type: ignore[call-overload]


def test_an_entry_of_another_person_is_copied_and_shown_as_text(made: Entry, own_gallery: Path) -> None:
    recipe = made.path / RECIPE
    recipe.write_text(recipe.read_text().replace("title: a", "title: <script>alert(1)</script> a"))
    replace(made.card, files=hashes(made.path)).write(made.path)
    assert add(made.path, name="theirs").path == own_gallery / "theirs"
    html = mnb.gallery()._repr_html_() + mnb.gallery("theirs")._repr_html_()
    assert "<script>" not in html and html.count("&lt;script&gt;") == 2
    (own_gallery / "theirs" / CARD).write_text("{")
    assert "cannot be read" in mnb.gallery()._repr_html_()
    with pytest.raises(ConfigError, match="already"):
        add(made.path, name="speaker_listener")
    with pytest.raises(ConfigError, match="letters"):
        add(made.path, name="../theirs")


@pytest.mark.parametrize("change", ["changed", "missing", "not on the card"])
def test_an_entry_that_differs_from_its_card_is_not_added(made: Entry, change: str, own_gallery: Path) -> None:
    file = made.path / "metrics.jsonl"
    if change == "missing":
        file.unlink()
    elif change == "changed":
        file.write_text(file.read_text().replace("1", "2", 1))
    else:
        (made.path / "more.py").touch()
    with pytest.raises(RunError, match=f"{change}: m"):
        add(made.path)
    assert not own_gallery.exists()


def test_an_entry_with_a_link_is_not_added(made: Entry) -> None:
    (made.path / "secret").symlink_to("/etc/passwd")
    with pytest.raises(ConfigError, match="link"):
        add(made.path)


def test_adding_imports_nothing_that_the_entry_names(
    made: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stolen.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    experiment = json.loads((made.path / "experiment.json").read_text())
    experiment["algorithm"] = {"name": "stolen:Algorithm"}
    (made.path / "experiment.json").write_text(json.dumps(experiment))
    replace(made.card, files=hashes(made.path)).write(made.path)
    entry = add(made.path)
    assert "talk" in mnb.gallery() and entry.run.path == entry.path
    with pytest.raises(RunError, match="stolen"):
        entry.run.policies()
    assert not (tmp_path / "ran").exists()


def test_a_recipe_makes_an_entry_and_again_the_same_numbers(
    tmp_path: Path, own_gallery: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "tiny"
    source.mkdir()
    (source / RECIPE).write_text(RECIPE_TEXT)
    entry = make(source, source, progress=False)
    assert [checkpoint.iteration for checkpoint in mnb.Run.open(source).checkpoints] == [1, 4]
    assert len((source / "metrics.jsonl").read_text().splitlines()) == 3  # 1, 3 and the last
    assert "host" not in json.loads((source / "status.json").read_text())
    assert {score.checkpoint for score in entry.card.scores} == {None, 1, 4}
    (finding,) = entry.card.findings
    assert "permute_channel at listener/observation" in finding.verdict
    assert list(finding.values) == ["arms.0.effects.0.difference"]
    assert main(["gallery", "add", str(source)]) == 0
    assert main(["gallery", "check", "tiny", "--out", str(tmp_path / "check")]) == 0
    assert "return of listener: card" in capsys.readouterr().out
    again = Card.read(tmp_path / "check" / "tiny")
    assert again.scores == entry.card.scores and again.findings == entry.card.findings

    broken = Entry(own_gallery / "tiny").copy(own_gallery / "broken").path  # an entry that cannot be made ends nothing
    (broken / RECIPE).write_text(RECIPE_TEXT.replace("env=mpe/simple_speaker_listener", "env=mpe/nothing"))
    unreadable = Entry(own_gallery / "tiny").copy(own_gallery / "unreadable").path
    (unreadable / CARD).write_text("{")
    misspelt = Entry(own_gallery / "tiny").copy(own_gallery / "misspelt").path
    (misspelt / RECIPE).write_text(RECIPE_TEXT.replace("expected: {listener", "expected: {listner"))
    names = ("broken", "unreadable", "misspelt", "tiny")
    assert main(["gallery", "check", *names, "--out", str(tmp_path / "check")]) == 1
    written = capsys.readouterr()
    assert "unreadable could not be made: " in written.err
    assert "misspelt could not be made: expected: no group or agent 'listner'; did you mean 'listener'" in written.err
    assert not (tmp_path / "check" / "misspelt").exists()
    assert "broken could not be made: " in written.err and "mpe/nothing" in written.err and "tiny:" in written.out


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("analysis: intervene", "analysis: intervne", "no analysis 'intervne' of a recipe; did you mean 'intervene'"),
        ("values: false", "valuez: false", "no option 'valuez'"),
        ("analysed: {episodes", "analysed: {episods", "no option 'episods'"),
        ("expected: {listener", "expected: {listner", "no group or agent 'listner'; did you mean 'listener'"),
    ],
)
def test_a_misspelt_name_in_a_recipe_is_an_error_before_the_training(
    tmp_path: Path, right: str, wrong: str, message: str
) -> None:
    assert RECIPE_TEXT.count(right) == 1
    (tmp_path / RECIPE).write_text(RECIPE_TEXT.replace(right, wrong))
    with pytest.raises(ConfigError, match=message):
        make(tmp_path, tmp_path / "made", progress=False)
    assert not (tmp_path / "made").exists()


def test_a_finished_run_of_another_experiment_is_not_taken_for_the_recipes(tmp_path: Path) -> None:
    source, mine = tmp_path / "tiny", tmp_path / "mine"
    source.mkdir()
    (source / RECIPE).write_text(RECIPE_TEXT)
    mnb.gallery("speaker_listener").copy(mine)
    before = hashes(mine)
    with pytest.raises(RunError, match="is a run of another experiment"):
        make(source, mine, progress=False)
    assert hashes(mine) == before


@pytest.mark.parametrize("how", ["circuit: {circuit: message_code}", "command: python -m other"])
def test_a_run_or_another_folder_is_not_overwritten_by_an_entry_that_is_not_trained(tmp_path: Path, how: str) -> None:
    source, mine, notes = tmp_path / "tiny", tmp_path / "mine", tmp_path / "notes"
    source.mkdir()
    (source / RECIPE).write_text(f"title: a\nsummary: b\nkind: cooperative\n{how}\n")
    mnb.gallery("speaker_listener").copy(mine)
    (mine / RECIPE).unlink()
    (mine / "config.pkl").touch()  # as of another library
    notes.mkdir()
    (notes / "recordings").mkdir()
    (notes / "config.pkl").touch()
    for folder, message in ((mine, "is a run"), (notes, "holds config.pkl, recordings")):
        before = hashes(folder)
        with pytest.raises(RunError, match=f"{message}, but not the {RECIPE} of tiny"):
            make(source, folder, progress=False)
        assert hashes(folder) == before


def test_a_number_out_of_its_range_does_not_hold() -> None:
    entry = Entry(TALK)
    worse = replace(entry.card, scores=tuple(replace(score, mean=-30.0) for score in entry.card.scores))
    failed = [str(comparison) for comparison in compare(entry.recipe, entry.card, worse) if not comparison.holds]
    assert len(failed) == 1 and "rerun -30" in failed[0] and "DOES NOT HOLD" in failed[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [("title: a", "has no default"), (RECIPE_TEXT + "colour: red", "colour"), ("{", "YAML"), ("train: x", "title")],
)
def test_a_recipe_that_is_not_valid_is_an_error_with_its_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / RECIPE).write_text(text)
    with pytest.raises(ConfigError, match=message) as raised:
        Recipe.read(tmp_path)
    assert str(tmp_path / RECIPE) in str(raised.value)


def test_the_command_lists_shows_and_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gallery"]) == 0
    assert "speaker_listener" in capsys.readouterr().out
    assert main(["gallery", "show", "speaker_listener", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["recipe"]["kind"] == "cooperative" and shown["card"]["episodes"] == 500
    assert main(["gallery", "burn"]) == 2
    assert "valid" in capsys.readouterr().err.lower()
    assert main(["gallery", "make", "nothing"]) == 2
    assert "speaker_listener" in capsys.readouterr().err


def test_an_entry_that_another_library_makes_says_how(tmp_path: Path) -> None:
    shutil.copyfile(TALK / RECIPE, tmp_path / RECIPE)
    text = "title: a\nsummary: b\nkind: cooperative\ncommand: python -m other\n"
    (tmp_path / RECIPE).write_text(text)
    with pytest.raises(ConfigError, match="python -m other"):
        make(tmp_path, tmp_path / "out")
