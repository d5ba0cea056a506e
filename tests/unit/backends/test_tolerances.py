"""What is published about differences is what back-ends are held to."""

from __future__ import annotations

from pathlib import Path

import pytest

import stoker.backends
from stoker.backends.tolerances import TOLERANCES, Limit, as_table


def test_the_readme_has_the_same_table() -> None:
    assert stoker.backends.__file__ is not None
    readme = (Path(stoker.backends.__file__).parent / "README.md").read_text()
    assert "\n".join(as_table()) in readme, "put into backends/README.md:\n" + "\n".join(as_table())


@pytest.mark.parametrize(
    "limit, text", [(Limit(), "0"), (Limit(0.5, 2), "mean 0.5, max 2"), (Limit(0.5, 2, 9), "mean 0.5, max 2, border 9")]
)
def test_limits_as_text(limit: Limit, text: str) -> None:
    assert str(limit) == text


def test_what_begins_with_other_pixels_may_differ_by_more() -> None:
    for tolerance in TOLERANCES:
        assert tolerance.gpu.mean >= tolerance.dali.mean
        assert tolerance.mixed.mean > tolerance.gpu.mean
        assert tolerance.mixed.max > tolerance.gpu.max
