"""Exercises for a class: `check` judges an answer in the notebook and explains mistakes.

The notebooks are in `notebooks/teaching`. Importing this package loads neither torch nor other heavy modules; a check
loads what it needs.
"""

from marlnb.teaching.checking import Verdict as Verdict
from marlnb.teaching.checking import check as check
from marlnb.teaching.checking import marks as marks
