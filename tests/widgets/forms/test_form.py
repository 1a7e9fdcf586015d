"""Forms of all registered dataclasses: every option, typed values, and problems."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest

from marlnb.algorithms.configs.ppo import MAPPOConfig
from marlnb.config import ALGORITHMS, ENVIRONMENTS, MODELS
from marlnb.errors import ConfigError, MarlnbError
from marlnb.evolution_config import EVOLUTIONS
from marlnb.experiment import Experiment
from marlnb.league_config import LEAGUES
from marlnb.widgets.forms.field import parse
from marlnb.widgets.forms.form import ConfigForm
from marlnb.widgets.forms.part_form import PartForm

FAMILIES = ("mpe", "matrix", "tag", "pettingzoo", "vmas", "torchrl", "external")
MEMBERS = [
    *(member for name, member in ENVIRONMENTS.items() if name.split("/")[0] in FAMILIES),
    *(member for _, member in (*ALGORITHMS.items(), *MODELS.items(), *LEAGUES.items(), *EVOLUTIONS.items())),
]


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.name)
def test_an_untouched_form_is_the_default(member: type[Any]) -> None:
    form = ConfigForm(member)
    assert not form.problems
    try:
        expected = member()
    except (MarlnbError, TypeError):  # without defaults for all options
        with pytest.raises(ConfigError, match=re.escape(member.name)):
            _ = form.config
    else:
        assert form.config == expected and form.n_changed == 0


def test_typed_texts_are_parsed() -> None:
    form = ConfigForm(MAPPOConfig)
    typed = {"lr": "1e-3", "epochs": " 4 ", "target_kl": "0.02", "lr_critic": "", "value_loss": "huber"}
    for name, text in typed.items():
        form.fields[name].enter(text)
    config = form.config
    assert (config.lr, config.epochs, config.target_kl, config.lr_critic) == (1e-3, 4, 0.02, None)
    assert config.value_loss == "huber" and form.n_changed == 4
    hidden = ConfigForm(MODELS.get("mlp")).fields["hidden"]
    for text in ("32, 16", "[32, 16]", "(32,16)"):
        hidden.enter(text)
        assert hidden.value == (32, 16)
    experiment = ConfigForm(Experiment, only=["frames", "seed", "target_return"])
    experiment.fields["frames"].enter("2_000_000")
    assert experiment.as_overrides() == ["frames=2000000"]


def test_options_of_a_part_of_the_options_are_a_form_below() -> None:
    form = ConfigForm(EVOLUTIONS.get("pbt"))
    probability = form.parts["probability"]
    assert len(form.boxes) == 2 and probability.box.title.startswith("probability: of each kind of mutation")
    assert probability.fields["none"].value == 0.0 and probability.n_changed == 0  # pbt's default, not the class's
    probability.fields["width"].enter("0.3")
    assert form.config.probability.width == 0.3 and form.as_overrides() == ["probability.width=0.3"]
    probability.fields["width"].enter("-1")
    with pytest.raises(ConfigError, match="width must be at least 0"):
        _ = form.config
    form.set({"probability": EVOLUTIONS.get("tournament")().probability})
    assert form.config.probability.none == 0.2


def test_invalid_input_stays_in_its_field_with_its_problem() -> None:
    calls = []
    form = ConfigForm(MAPPOConfig, on_change=lambda: calls.append(1))
    lr = form.fields["lr"]
    lr.enter("-1")
    assert lr.problem == "lr must be more than 0; got -1.0" and calls == [1]
    lr.enter("fast")
    assert "lr must be a number" in lr.problem and lr.raw == "fast"
    with pytest.raises(ConfigError, match="lr must be a number"):
        _ = form.config
    assert list(form.problems) == ["lr"]
    lr.set(0.5)
    assert not form.problems and len(calls) == 2  # setting by code does not call on_change


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("none", float | None, None),
        ("", int | None, None),
        ("none", str, "none"),
        ("5", str, "5"),
        ("true", bool | None, True),
        ("null", int | None, None),
        ("{'a': 1}", dict[str, int], {"a": 1}),
        ("{'a': True, 'b': None}", dict[str, Any], {"a": True, "b": None}),
        ('{"a": true, "b": [null, 1e-4]}', dict[str, Any], {"a": True, "b": [None, 1e-4]}),
        ('[{"a": true}]', tuple[dict[str, Any], ...], [{"a": True}]),
        ("a, b", tuple[str, ...], ["a", "b"]),
        ("__import__('os').system('true')", float, "__import__('os').system('true')"),
    ],
)
def test_text_is_read_by_what_is_asked_for(text: str, annotation: Any, value: Any) -> None:
    assert parse(text, annotation, "option") == value


def test_a_mapping_that_cannot_be_read_is_an_error_that_shows_one() -> None:
    for text in ("n_walkers=2", "{n_walkers: 2}", "{1, 2"):
        with pytest.raises(ConfigError, match=f"kwargs must be a mapping, such as .*; cannot read {text!r}"):
            parse(text, dict[str, Any], "kwargs")


def test_a_part_is_searched_for_by_family_and_name() -> None:
    part = PartForm(ENVIRONMENTS, "mpe/simple_spread", has_search=True)
    part._search.value = "tag"
    assert "mpe/simple_tag" in part._name.options and "mpe/simple_spread" not in part._name.options
    part._family.value = "mpe"
    assert part._name.options == ("mpe/simple_tag",)
    part._search.value = "zebra"
    assert not part._name.options and "zebra" in part._description.value
    part._search.value, part._family.value = "", "(all)"
    assert part._name.value == "mpe/simple_spread"
    part._name.value = "mpe/simple_tag"
    part.form.fields["num_good"].enter("3")
    part._name.value = "mpe/simple_spread"
    part._name.value = "mpe/simple_tag"
    assert part.config.num_good == 3  # what was entered comes back


def test_a_search_does_not_choose() -> None:
    changes: list[str] = []
    part = PartForm(ENVIRONMENTS, "mpe/simple_spread", has_search=True, on_change=lambda: changes.append(part.name))
    for text in ("tag", "zebra", "spread", ""):
        part._search.value = text
        assert part.config.name == "mpe/simple_spread" and changes == []
        assert ("still chosen" in part._description.value) == (text in ("tag", "zebra"))
        assert part._name.value == (None if text in ("tag", "zebra") else "mpe/simple_spread")
    part._search.value = "tag"
    part._name.value = "mpe/simple_tag"
    assert changes == ["mpe/simple_tag"] and "still chosen" not in part._description.value


def test_unavailable_parts_cannot_be_chosen_and_have_a_reason() -> None:
    part = PartForm(ALGORITHMS, "mappo")
    part.set_unavailable({"qmix": "qmix: it needs <discrete> actions", "mappo": "mappo: not here"})
    assert "qmix" not in part._name.options and "needs &lt;discrete&gt; actions" in part._description.value
    with pytest.raises(ConfigError, match="not here"):
        _ = part.config
    part.set_unavailable({})
    assert part.config == MAPPOConfig()


def test_a_page_that_sends_one_option_does_not_change_others() -> None:
    calls: list[dict[str, Any]] = []
    form = ConfigForm(MAPPOConfig, title="options", on_change=lambda: calls.append(form.problems))
    page = form.box
    form.fields["epochs"].set(7)
    page.set_state({"option_lr": "1e-3"})  # from a page that does not know the new epochs
    assert (form.config.lr, form.config.epochs) == (1e-3, 7) and calls == [{}]
    sent: list[str] = []
    page.observe(lambda change: sent.append(change["new"]), "option_epochs")
    page.set_state({"option_lr": "fast", "option_epochs": "0", "option_value_loss": "huber"})
    assert list(form.problems) == list(page.problems) == ["lr", "epochs"] and len(calls) == 4
    assert page.title == "options (3 changed, 2 invalid)" and page.is_open
    assert (page.option_lr, page.option_epochs) == ("fast", "0") and sent == ["0"]
    form.set(MAPPOConfig())
    assert form.n_changed == 0 and page.problems == {} and page.title == "options" and page.option_epochs != "0"
    assert len(calls) == 4  # setting by code does not call on_change


def test_the_view_has_each_option_with_its_help() -> None:
    drawn = {option["name"]: option for option in ConfigForm(MAPPOConfig).box.options}
    assert list(drawn) == [item.name for item in fields(MAPPOConfig)]
    assert drawn["value_loss"]["choices"] == ["l2", "huber"] and drawn["value_loss"]["control"] == "choice"
    assert drawn["lr"]["control"] == "text" and "more than 0" in drawn["lr"]["help"]
    assert drawn["target_kl"]["placeholder"] == "none" and drawn["lr"]["placeholder"] == ""
