"""Which part is named as the one that limits."""

from __future__ import annotations

import pytest

from stoker.engine.stats import Counters, verdict


@pytest.mark.parametrize(
    "counters, expected",
    [
        (Counters(), "unknown"),
        (Counters(batches=1, wait_read_s=3.0, wait_decode_s=1.0, between_s=1.0), "storage"),
        (Counters(batches=1, wait_read_s=1.0, wait_decode_s=3.0, between_s=1.0), "decode"),
        (Counters(batches=1, wait_read_s=0.01, wait_decode_s=0.01, between_s=10.0), "trainer"),
    ],
)
def test_the_larger_wait_is_named_unless_the_trainer_hardly_waits(counters: Counters, expected: str) -> None:
    assert verdict(counters) == expected
