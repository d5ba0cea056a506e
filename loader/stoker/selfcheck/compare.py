"""How much pictures differ, and whether that is within a limit; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stoker.backends.tolerances import BORDER_PIXELS, Limit
from stoker.errors import SampleError

Outcome: TypeAlias = NDArray[Any] | SampleError
"""The pixels, or why there are none."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Absolute differences of one picture, as a :class:`Limit` has them; ``border`` is 0 where the limit has none."""

    mean: float
    max: float
    border: float

    @property
    def any(self) -> bool:
        return bool(self.mean or self.max or self.border)

    def exceeds(self, limit: Limit) -> bool:
        """Whether any of the three is beyond its limit."""
        return self.mean > limit.mean or self.max > limit.max or self.border > (limit.border or 0)


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one chain on one back-end, beside its reference.

    ``mean``, ``max`` and ``border`` are the worst of all pictures, not all of the same one; ``worst`` is the picture
    that is nearest to its limits, or beyond them. ``problems`` says what is wrong, a line a picture.
    """

    chain: str
    backend: str
    reference: str
    limit: Limit
    is_measured: bool
    num_pictures: int
    mean: float
    max: float
    border: float
    worst: str
    problems: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        return not self.problems


def judge(
    chain: str,
    backend: str,
    reference: str,
    limit: Limit,
    expected: Mapping[str, Outcome],
    found: Mapping[str, Outcome],
    *,
    is_measured: bool = True,
) -> Finding:
    """Compare what was made of each picture of ``expected``: the verdict, the shape, the dtype, the pixels."""
    problems: list[str] = []
    differences: dict[str, Difference] = {}
    for name, outcome in expected.items():
        problem = _other_kind(outcome, found[name])
        if problem is None and not isinstance(outcome, SampleError):
            differences[name] = difference(found[name], outcome, limit)  # type: ignore[arg-type]  # both are pixels
            problem = _excess(differences[name], limit)
        if problem is not None:
            problems.append(f"{name}: {problem}")
    worst = max(differences, key=lambda name: (_share(differences[name], limit), differences[name].mean), default="")
    mean, most, border = (
        max((getattr(each, part) for each in differences.values()), default=0.0) for part in ("mean", "max", "border")
    )
    return Finding(
        chain,
        backend,
        reference,
        limit,
        is_measured,
        num_pictures=len(expected),
        mean=mean,
        max=most,
        border=border,
        worst=worst if most or border else "",
        problems=tuple(problems),
    )


def difference(found: NDArray[Any], expected: NDArray[Any], limit: Limit) -> Difference:
    """Compare pictures of one shape, height × width × channels where the limit knows a border."""
    absolute = np.abs(found.astype(np.float64) - expected)
    inner = absolute
    if limit.border is not None:
        inner = absolute[BORDER_PIXELS:-BORDER_PIXELS, BORDER_PIXELS:-BORDER_PIXELS]
    most, inner_most = (float(part.max(initial=0.0)) for part in (absolute, inner))
    return Difference(float(absolute.mean()), inner_most, most if limit.border is not None else 0.0)


def _other_kind(expected: Outcome, found: Outcome) -> str | None:
    """What is different in kind; None if both are bad, or both pixels of one shape and dtype."""
    if isinstance(expected, SampleError):
        return None if isinstance(found, SampleError) else f"bad ({expected.reason}), but was made here"
    if isinstance(found, SampleError):
        return f"good, but refused here: {found.reason}"
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return f"{found.dtype} {found.shape}; expected {expected.dtype} {expected.shape}"
    return None


def _excess(found: Difference, limit: Limit) -> str | None:
    if not found.exceeds(limit):
        return None
    border = "" if limit.border is None else f", border {found.border:.3g}"
    return f"mean {found.mean:.3g}, max {found.max:.3g}{border}; allowed: {limit}"


def _share(found: Difference, limit: Limit) -> float:
    """How much of its nearest limit a difference uses up; where nothing is allowed, anything is too much."""
    pairs = ((found.mean, limit.mean), (found.max, limit.max), (found.border, limit.border or 0.0))
    return max(value / allowed if allowed else math.inf for value, allowed in pairs if value) if found.any else 0.0
