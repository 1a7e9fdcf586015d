"""usage: which agents use what decoding finds in their last hidden layer, or what the units tuned to it represent.

Decoding sees where the concept moves the units' mean. A unit that a concept gates follows something else while it is
on, and its mean may be the same whatever the concept is: tuning finds it, and mediation sees whether choices hang on
it.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from marlnb.analysis.decoding.decode import decode
from marlnb.analysis.interventions.mediation import mediation
from marlnb.analysis.interventions.usage import NEGLIGIBLE, usage
from marlnb.analysis.representations.tuning import tuning
from marlnb.analysis.results import ALPHA
from marlnb.analysis.stats.corrections import holm
from marlnb.errors import AnalysisError
from marlnb.groundtruth.instance import Instance, analysis
from marlnb.groundtruth.scoring.circuit_claims import AgentsClaim
from marlnb.groundtruth.scoring.finding import Finding

EPISODES = 40
N_SHUFFLES = 79
N_RANDOM = 63
"""So that the smallest p-value, 1 / 64, is below ALPHA when it is corrected for three ways of asking."""


@analysis("usage")
def used(instance: Instance) -> Finding:
    agents = tuple(
        agent
        for group in instance.task.groups
        for agent in instance.members(group)
        if _is_used(instance, instance.hidden_sites(group)[-1], agent)
    )
    return instance.finding("usage", ("agents",), [AgentsClaim(agents=agents)])


def _is_used(instance: Instance, site: str, agent: str) -> bool:
    corrected = holm(np.array([*_by_directions(instance, site, agent), _by_units(instance, site, agent)]))
    return bool(corrected.min() <= ALPHA)


def _by_directions(instance: Instance, site: str, agent: str) -> tuple[float, float]:
    """p-values of erasing and of steering along what decoding finds; 1 where the effect may be negligible.

    The effect does not hang on the random directions, so these are tried only where it is not negligible.
    """
    try:
        decoding = decode(
            instance.recording,
            site=site,
            label=instance.task.concept,
            agent=agent,
            kind="classification" if instance.task.kind == "classes" else "regression",
            n_shuffles=1,
            folds=3,
            progress=False,
        )
    except AnalysisError:  # the layer or the label never varies: there is nothing to use
        return 1.0, 1.0
    ask = partial(usage, instance.agents, decoding.directions(agent), agent=agent, episodes=EPISODES, n_envs=EPISODES)
    tests = ask(n_random_directions=1).tests
    if any(test.low > NEGLIGIBLE for test in tests):
        tests = ask(n_random_directions=N_RANDOM).tests
    erase, steer = (test.p_value if test.low > NEGLIGIBLE else 1.0 for test in tests)
    return erase, steer


def _by_units(instance: Instance, site: str, agent: str) -> float:
    """Smallest p-value of a unit that the concept sets and choices hang on."""
    try:
        tuned = tuning(
            instance.recording,
            site=site,
            label=instance.task.concept,
            agent=agent,
            n_shuffles=N_SHUFFLES,
            n_bootstrap=20,
        )
    except AnalysisError:
        return 1.0
    return float(mediation(instance.agents, tuned, episodes=EPISODES, n_envs=EPISODES).p_value.min(initial=1.0))
