"""The search for the tuned settings: random candidates, successive halving, selection by the worst seed.

    make tune ARGS="simple_spread --minutes 60"        # stop it whenever you like; started again, it continues

Each task of `spaces.py` is an environment, an algorithm, a start and a few values for each option. The start and random
changes of it train for a few CPU-seconds. The best continue to the next rung, with more seconds and more seeds, and are
ranked by their worst seed. The winner is then trained with seeds that the search has not used: those scores are shown.

Every training run is a line of `trials.jsonl`. The next training run follows from these lines alone, so a search that
was killed repeats at most the training that it was killed in. The clock counts CPU-seconds of the process and its
workers, without imports and scoring, so other programs on the machine matter little.
"""
