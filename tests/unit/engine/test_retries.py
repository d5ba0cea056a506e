"""Retries of a loader's reads are counted, and end when it closes."""

from __future__ import annotations

import pytest

from stoker.engine.retries import RetryTally
from stoker.errors import ClosedError
from support.faulty_http import Status, run_faulty_http


def test_retries_are_counted() -> None:
    tally = RetryTally()
    with run_faulty_http() as server:
        url = server.put("a", b"x" * 100, [Status(500), Status(503, "SlowDown")])
        assert len(tally.open(url, {}).read(url, 0, 100)) == 100
    assert (tally.stats().retries, tally.stats().throttled) == (2, 1)


def test_nothing_is_tried_again_once_the_loader_is_closed() -> None:
    tally = RetryTally()
    with run_faulty_http() as server:
        url = server.put("a", b"x" * 100, [Status(503, "SlowDown")] * 9)
        store = tally.open(url, {})
        tally.close()
        with pytest.raises(ClosedError, match="closed"):
            store.read(url, 0, 100)
        assert server.num_gets("a") == 1
