"""usage: which agents use the directions that decode the concept, or the units that are tuned to it.

Decoding finds shifts of the units' mean. A unit gated by the concept encodes another quantity while it is active, so
its mean may not depend on the concept. Tuning finds such a unit, and mediation tests whether choices depend on it.
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
"""The smallest p-value, 1 / 64, is below ALPHA after correction for three tests."""


@analysis("usage")
def used(instance: Instance) -> Finding:
    agents = tuple(agent for agent, site in instance.last_pairs() if _is_used(instance, site, agent))
    return instance.finding("usage", ("agents",), [AgentsClaim(agents=agents)])


def _is_used(instance: Instance, site: str, agent: str) -> bool:
    corrected = holm(np.array([*_by_directions(instance, site, agent), _by_units(instance, site, agent)]))
    return bool(corrected.min() <= ALPHA)


def _by_directions(instance: Instance, site: str, agent: str) -> tuple[float, float]:
    """p-values of erasing and steering the decoded directions; 1 where the effect may be negligible.

    The effect does not depend on the random directions. They run only where the effect is not negligible.
    """
    try:
        decoding = decode(
            instance.recording, site=site, label=instance.task.concept, agent=agent, kind=instance.kind_of_decoding,
            n_shuffles=1, folds=3, progress=False,
        )  # fmt: skip
    except AnalysisError:  # constant layer or label: nothing to use
        return 1.0, 1.0
    measure = partial(
        usage, instance.agents, decoding.directions(agent), agent=agent, episodes=EPISODES, n_envs=EPISODES
    )
    tests = measure(n_random_directions=1).tests
    if any(test.low > NEGLIGIBLE for test in tests):
        tests = measure(n_random_directions=N_RANDOM).tests
    erase, steer = (test.p_value if test.low > NEGLIGIBLE else 1.0 for test in tests)
    return erase, steer


def _by_units(instance: Instance, site: str, agent: str) -> float:
    """Smallest p-value of mediation by a unit that is tuned to the concept."""
    try:
        concept = instance.task.concept
        tuned = tuning(instance.recording, site=site, label=concept, agent=agent, n_shuffles=N_SHUFFLES, n_bootstrap=20)
    except AnalysisError:
        return 1.0
    return float(mediation(instance.agents, tuned, episodes=EPISODES, n_envs=EPISODES).p_value.min(initial=1.0))
