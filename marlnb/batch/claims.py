"""Claims of a notebook: asserted if its parameters are those for which the claims were made, else printed."""

from __future__ import annotations

from typing import Any


class Claims:
    """Asserts claims, unless a parameter is below what they were made for.

    A notebook claims what its own parameters show. With fewer frames or episodes, as in a quick batch, a claim that is
    not met is printed with the reason, and the notebook continues.

    ```python
    claim = Claims(frames=(frames, 8192), algorithm=(algorithm, "mappo"))
    claim(score >= 0.9, f"the goal is decoded with 0.9: {score:.2f}")
    ```

    Args:
        parameters: by name, its value and what the claims need: at least a number, one of a set, or exactly that.
    """

    def __init__(self, **parameters: tuple[Any, Any]) -> None:
        self.reasons = [reason for name, pair in parameters.items() if (reason := _reason(name, *pair))]

    def __call__(self, is_met: Any, claim: str) -> None:
        """Asserts one claim.

        Raises:
            AssertionError: it is not met, with parameters for which it was made.
        """
        if not self.reasons:
            assert is_met, claim
        elif not is_met:
            print(f"not claimed with {', '.join(self.reasons)}: {claim}")


def _reason(name: str, value: Any, needed: Any) -> str:
    """Why claims do not apply, such as `frames=800 (needs 8,192)`; empty if they do."""
    if isinstance(needed, set):
        is_enough, text = value in needed, " or ".join(sorted(map(repr, needed)))
    elif isinstance(needed, int | float) and not isinstance(needed, bool):
        is_enough, text = value is not None and value >= needed, f"{needed:,}"
    else:
        is_enough, text = value == needed, repr(needed)
    return "" if is_enough else f"{name}={value!r} (needs {text})"
