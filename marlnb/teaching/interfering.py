"""Chapter 4, intervene: the right edit, the size of an effect, and controls for it."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from marlnb.teaching.checking import WrongAnswer, close, exercise, number
from marlnb.teaching.choices import choice, option_of, sealed
from marlnb.teaching.seeing import feature_names

if TYPE_CHECKING:
    from marlnb.analysis.interventions.result import Intervention
    from marlnb.training.policies.policy_source import PolicySourceLike


def wrong_words(policy_source: PolicySourceLike, *, episodes: int) -> Intervention:
    """The same episodes with their own words and with words of other games: the intervention of exercise 4.1."""
    from marlnb.analysis.interventions.intervene import intervene
    from marlnb.models.hooks.edits_channel import PermuteChannel

    return intervene(policy_source, PermuteChannel("listener"), episodes=episodes)


@exercise("4.1", "an edit that makes each listener hear usual words that do not fit its own goal")
def misheard(answer: Any) -> str:
    from marlnb.models.hooks.edit import Edit
    from marlnb.models.hooks.edits import Ablate
    from marlnb.models.hooks.edits_channel import BlockChannel, PermuteChannel

    if isinstance(answer, type):
        raise WrongAnswer(f"{answer.__name__} is a kind of edit. Make one, with the group whose messages it changes.")
    if isinstance(answer, list | tuple) and len(answer) == 1:
        raise WrongAnswer("That is a list of edits. Give one edit: leave out the brackets around it.")
    if not isinstance(answer, Edit):
        raise WrongAnswer(f"The answer is an edit, such as mnb.Ablate(...); you gave {answer!r}.")
    if isinstance(answer, PermuteChannel):
        if answer.site.startswith("speaker"):
            raise WrongAnswer("That exchanges what the speaker sees. Edit what the listener hears.")
        if answer.site != "listener/observation":
            raise WrongAnswer(f"`{answer.site}` is not what the listener hears. Give the group, `listener`, alone.")
        _check_words(answer.units or ())
        if answer.t is not None:
            raise WrongAnswer("That exchanges the words at some steps only. Leave out `t`.")
        return "Every word is a usual one, but from another game. Only its meaning differs."
    if isinstance(answer, BlockChannel):
        raise WrongAnswer(
            "A listener that hears nothing, or all words at once, gets an input that it has never had after the first "
            "step. You would also measure its surprise."
        )
    if isinstance(answer, Ablate) and answer.site.startswith("speaker"):
        raise WrongAnswer(
            "Held at zero, the speaker says the same word in every game, which fits a third of the goals."
        )
    if isinstance(answer, Ablate):
        raise WrongAnswer("Ablated units are held at zero: the agent does not hear a wrong word, it is damaged.")
    raise WrongAnswer(f"{type(answer).__name__} does not exchange words. Which edits begin with Permute?")


def _check_words(units: tuple[int | str, ...]) -> None:
    """Whether an edit of the listener's features changes the words, and nothing else."""
    names = feature_names("listener")
    edited = {n for k, n in enumerate(names) for unit in units if unit == k or fnmatchcase(n, str(unit))}
    words = {name for name in names if name.startswith("message")}
    if missing := sorted(words - edited):
        raise WrongAnswer(f"That leaves {', '.join(missing)} as they are: it still hears its own game's words.")
    if others := sorted(edited - words):
        raise WrongAnswer(f"That also exchanges {', '.join(others)}. Exchange the words alone, or you measure both.")


@exercise("4.2", "how much return the wrong words cost, as a number above 0")
def cost(answer: Any, result: Intervention) -> str:
    value, effect = number(answer, "A cost"), result.of("return", "listener")
    if close(value, -effect.difference, 0.05):
        return (
            f"From {effect.before:.1f} to {effect.after:.1f}: with the wrong words, it confidently walks to the wrong "
            "landmark."
        )
    if close(value, effect.difference, 0.05):
        raise WrongAnswer("The size is right. A cost is a positive number, so give it without the minus.")
    if close(abs(value), abs(effect.after), 0.05):
        raise WrongAnswer("That is the return with the edit. How much lower is it than without?")
    if close(abs(value), abs(effect.before), 0.05):
        raise WrongAnswer("That is the return without the edit. How much lower is it with the edit?")
    if close(abs(value), effect.high - effect.low, 0.05):
        raise WrongAnswer("That is the width of the interval: how sure the difference is, not how large.")
    raise WrongAnswer('result.of("return", "listener") has before, after and difference.')


choice(
    "4.3",
    {
        "8cad888ac9": (
            "Its neighbours hold the same information. To remove information that is spread out, one has to remove "
            "it from all of them."
        ),
        "a4b1f67ebc": (
            "The unit follows the goal, that is certain. But without it hardly anything changed, so it is not needed."
        ),
        "b987b111f6": (
            "That is more than was seen. Other units may replace it, and all of them together may matter a lot."
        ),
    },
)


@exercise("4.4", "one of a, b, c")
def are_special(answer: Any, tuned_cost: float, random_costs: Sequence[float]) -> str:
    """Judged with the student's own numbers."""
    key, n = sealed("4.4", option_of(answer, "abc")), len(random_costs)
    if not n:
        raise WrongAnswer(
            "There are no random sets to compare with. Set `n_random_sets` to 8, and run the cells again."
        )
    n_more = sum(value >= tuned_cost for value in random_costs)
    if key == "05a375a487":
        explanation = (
            "The cost is above 0, so these units together do something."
            if tuned_cost > 0
            else "Without these units nothing was lost, but others may do their work then, so they may do something."
        )
        raise WrongAnswer(f"{explanation} The question is whether others do as much.")
    if (key == "8d166a5eee") != (n_more == 0):
        if n_more:
            raise WrongAnswer("Compare: what do as many randomly drawn units cost?")
        raise WrongAnswer(f"Compare: how many of your {n} random sets cost as much?")
    if n_more:
        return "That is what the comparison is for. Tuned units are easy to see; many others carry the goal as well."
    return (
        f"None of your {n} random sets costs as much. By luck alone that happens in one of {n + 1} cases, so draw more "
        "sets before you believe it."
    )
