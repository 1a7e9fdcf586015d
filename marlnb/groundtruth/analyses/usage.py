"""usage: which agents use the directions that decode the concept, or the units that are tuned to it.

An agent is named if `usage` concludes "used"; "not separable" from other quantities is not enough.

Decoding finds shifts of the units' mean. A unit gated by the concept encodes another quantity while it is active, so
its mean may not depend on the concept. Tuning finds such a unit, and mediation tests whether choices depend on it.
"""

from __future__ import annotations

from functools import partial

from marlnb.analysis.decoding.decode import decode
from marlnb.analysis.interventions.mediation import mediation
from marlnb.analysis.interventions.usage import MIN_RANDOM_DIRECTIONS, NEGLIGIBLE, usage
from marlnb.analysis.interventions.usage_result import Conclusion
from marlnb.analysis.representations.tuning import tuning
from marlnb.analysis.results import ALPHA
from marlnb.errors import AnalysisError
from marlnb.groundtruth.instance import Instance, analysis
from marlnb.groundtruth.scoring.circuit_claims import AgentsClaim
from marlnb.groundtruth.scoring.finding import Finding

EPISODES = 40
N_SHUFFLES = 79


@analysis("usage")
def used(instance: Instance) -> Finding:
    agents = tuple(agent for agent, site in instance.last_pairs() if _is_used(instance, site, agent))
    return instance.finding("usage", ("agents",), [AgentsClaim(agents=agents)])


def _is_used(instance: Instance, site: str, agent: str) -> bool:
    return _conclusion(instance, site, agent) == "used" or _by_units(instance, site, agent) <= ALPHA


def _conclusion(instance: Instance, site: str, agent: str) -> Conclusion:
    """What `usage` concludes of the decoded directions.

    The effect does not depend on the random directions. They run only where the effect is not negligible.
    """
    try:
        decoding = decode(
            instance.recording, site=site, label=instance.task.concept, agent=agent, kind=instance.kind_of_decoding,
            n_shuffles=1, folds=3, progress=False,
        )  # fmt: skip
    except AnalysisError:  # constant layer or label: nothing to use
        return "not shown to be used"
    measure = partial(
        usage, instance.agents, decoding.directions(agent), agent=agent, episodes=EPISODES, n_envs=EPISODES,
        progress=False,
    )  # fmt: skip
    result = measure(n_random_directions=1)
    if any(test.low > NEGLIGIBLE for test in result.tests):
        result = measure(n_random_directions=MIN_RANDOM_DIRECTIONS)
    return result.conclusion


def _by_units(instance: Instance, site: str, agent: str) -> float:
    """Smallest p-value of mediation by a unit that is tuned to the concept, corrected for the units (Holm)."""
    try:
        concept = instance.task.concept
        tuned = tuning(instance.recording, site=site, label=concept, agent=agent, n_shuffles=N_SHUFFLES, n_bootstrap=20)
    except AnalysisError:
        return 1.0
    return float(mediation(instance.agents, tuned, episodes=EPISODES, n_envs=EPISODES).p_value.min(initial=1.0))
