"""Exercises for a class: answers are checked where they are given, and what is wrong with one is said, and why.

The notebooks are in `notebooks/teaching`. Importing this loads neither torch nor anything heavy: what a check needs is
loaded when it is asked.
"""

from marlnb.teaching.checking import Verdict as Verdict
from marlnb.teaching.checking import check as check
from marlnb.teaching.checking import marks as marks
