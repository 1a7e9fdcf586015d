"""Chapter 4, intervene: the right thing to take away, the size of an effect, and what else would have had it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marlnb.teaching.checking import WrongAnswer, close, exercise, number
from marlnb.teaching.choices import one_of

if TYPE_CHECKING:
    from marlnb.analysis.interventions.intervene import PolicySourceLike
    from marlnb.analysis.interventions.result import Intervention


def wrong_words(subject: PolicySourceLike, *, episodes: int) -> Intervention:
    """The same episodes with fitting words and with those of other games: what 4.1 asks for, done."""
    from marlnb.analysis.interventions.intervene import intervene
    from marlnb.models.hooks.edits_channel import PermuteChannel

    return intervene(subject, PermuteChannel("listener"), episodes=episodes)


@exercise("4.1", "an edit that lets each listener hear usual words that do not fit its own goal")
def misheard(answer: Any) -> str:
    from marlnb.models.hooks.edit import Edit
    from marlnb.models.hooks.edits import Ablate
    from marlnb.models.hooks.edits_channel import BlockChannel, PermuteChannel

    if isinstance(answer, type):
        raise WrongAnswer(
            f"{answer.__name__} is a kind of edit. Make one: it wants to know which group's ears are meant."
        )
    if isinstance(answer, list | tuple) and len(answer) == 1:
        raise WrongAnswer("That is a list of edits. One is asked for: leave out the brackets around it.")
    if not isinstance(answer, Edit):
        raise WrongAnswer(f"An edit is asked for, as mnb.Ablate(...); you gave {answer!r}.")
    if isinstance(answer, PermuteChannel):
        if not answer.site.startswith("listener"):
            raise WrongAnswer("That exchanges what the speaker sees. The listener's ears are meant.")
        return (
            "Every word is one that is often said, only it was said in another game. What is left to differ "
            "is its meaning."
        )
    if isinstance(answer, BlockChannel):
        raise WrongAnswer(
            "A listener that hears nothing, or all words at once, hears what it has never heard after the first step. "
            "What you would measure is also its surprise."
        )
    if isinstance(answer, Ablate) and answer.site.startswith("speaker"):
        raise WrongAnswer("Held at zero the speaker says the same word in every game: it fits a third of the goals.")
    if isinstance(answer, Ablate):
        raise WrongAnswer("Ablated units are held at zero: the agent does not get a wrong word, it is damaged.")
    raise WrongAnswer(f"{type(answer).__name__} does not exchange words. Which edits begin with Permute?")


@exercise("4.2", "how much return the wrong words cost, as a number above 0")
def cost(answer: Any, result: Intervention) -> str:
    given, effect = number(answer, "A cost"), result.of("return", "listener")
    if close(given, -effect.difference, 0.05):
        return (
            f"From {effect.before:.1f} to {effect.after:.1f}: with the wrong words it walks to the wrong "
            "place, with confidence."
        )
    if close(given, effect.difference, 0.05):
        raise WrongAnswer("The size is right. A cost of so much is asked for, so without the minus.")
    if close(abs(given), abs(effect.after), 0.05):
        raise WrongAnswer("That is the return with the edit. How much less is it than without?")
    if close(abs(given), abs(effect.before), 0.05):
        raise WrongAnswer("That is the return without the edit. How much less is it with it?")
    if close(abs(given), effect.high - effect.low, 0.05):
        raise WrongAnswer("That is the width of the interval: how sure the difference is, not how large.")
    raise WrongAnswer('result.of("return", "listener") has before, after and difference.')


exercise("4.3", "one of a, b, c")(
    one_of(
        "4.3",
        ("a", "b", "c"),
        {
            "8cad888ac9": (
                "Its neighbours hold the same. To take knowledge away that is spread out, one has to take it "
                "from all of them."
            ),
        },
        {
            "a4b1f67ebc": (
                "The unit follows the goal, that much is sure. But without it hardly anything changed, so it is "
                "not needed."
            ),
            "b987b111f6": (
                "That is more than was seen. The others may do its work when it is gone, and all together may "
                "matter a lot."
            ),
        },
    )
)


exercise("4.4", "one of a, b, c")(
    one_of(
        "4.4",
        ("a", "b", "c"),
        {
            "a330aa9676": (
                "That is what the comparison is for. Tuned units catch the eye; many others carry the goal as well."
            ),
        },
        {
            "8d166a5eee": "They cost something, but compare: what do as many units cost that were drawn by lot?",
            "05a375a487": (
                "The cost is well above 0, so these units together do something. The question is whether others "
                "do as much."
            ),
        },
    )
)
