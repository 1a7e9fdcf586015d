"""Ground truth: policies with planted circuits and the answer key, to score any analysis on.

planted = marlnb.groundtruth.planted("partner_goal", "gru", shared=False, seed=3)
recording = planted.record()                      # or marlnb.record(planted.agents, ...)
planted.task                                      # what an analysis may know
planted.key                                       # what it must find
"""

from marlnb.groundtruth.answer_key import AnswerKey as AnswerKey
from marlnb.groundtruth.answer_key import Node as Node
from marlnb.groundtruth.answer_key import PublicTask as PublicTask
from marlnb.groundtruth.planting import Circuit as Circuit
from marlnb.groundtruth.planting import Planted as Planted
from marlnb.groundtruth.planting import circuit as circuit
from marlnb.groundtruth.planting import circuit_names as circuit_names
from marlnb.groundtruth.planting import planted as planted
from marlnb.groundtruth.scoring.claims import Claim as Claim
from marlnb.groundtruth.scoring.faithfulness import faithfulness as faithfulness
from marlnb.groundtruth.scoring.faithfulness import onset_steps as onset_steps
from marlnb.groundtruth.scoring.faithfulness import spillover as spillover
from marlnb.groundtruth.scoring.finding import Finding as Finding
from marlnb.groundtruth.scoring.score import Score as Score
from marlnb.groundtruth.scoring.score import score as score
