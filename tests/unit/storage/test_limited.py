"""Each request waits for its turn, and tells how it ended."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import pytest

from stoker.errors import ClosedError, NotFoundError, TransientError
from stoker.storage.limited import LimitedStore
from stoker.storage.rate import RateLimits
from stoker.storage.retry import ThrottledError
from stoker.storage.store import ObjectInfo

URL = "s3://bucket/train/x.tar"


class Strict:
    """A store that refuses while ``error`` is set; its clock is moved by those who sleep."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.error: Exception | None = None
        self.asked: list[float] = []

    def _ask(self) -> None:
        self.asked.append(self.now_s)
        if self.error is not None:
            raise self.error

    def head(self, url: str) -> ObjectInfo:
        self._ask()
        return ObjectInfo(url, 3, "")

    def list(self, prefix: str, *, max_depth: int | None = None) -> Iterator[ObjectInfo]:
        self._ask()
        yield ObjectInfo(prefix, 3, "")

    def peek(self, folder: str) -> Sequence[str]:
        self._ask()
        return ["x"]

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        self._ask()
        return memoryview(b"abc")[start:stop]

    def write(self, url: str, payload: bytes) -> None:
        self._ask()

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds <= 1.0
        self.now_s += seconds


@pytest.fixture
def inner() -> Strict:
    return Strict()


@pytest.fixture
def limits(inner: Strict) -> RateLimits:
    return RateLimits(lambda: inner.now_s)


@pytest.fixture
def store(inner: Strict, limits: RateLimits) -> LimitedStore:
    return LimitedStore(inner, limits, max_wait_s=10.0, sleep=inner.sleep)


CALLS: dict[str, Callable[[LimitedStore], object]] = {
    "read": lambda store: bytes(store.read(URL, 0, 3, "v")),
    "head": lambda store: store.head(URL),
    "list": lambda store: list(store.list("s3://bucket/train/")),
    "peek": lambda store: store.peek("s3://bucket/train/"),
    "write": lambda store: store.write(URL, b"abc"),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_takes_a_turn_and_is_counted(
    store: LimitedStore, inner: Strict, limits: RateLimits, name: str
) -> None:
    limits.set({"s3://bucket/train": 2.0})
    for _ in range(3):
        CALLS[name](store)
    assert inner.asked == pytest.approx([0.0, 0.5, 1.0])
    inner.error = ThrottledError("too many")
    with pytest.raises(ThrottledError):
        CALLS[name](store)
    (use,) = limits.report()
    assert (use.requests, use.throttled, use.waited) == (4, 1, 3)


def test_without_a_refusal_nothing_waits(store: LimitedStore, inner: Strict) -> None:
    for _ in range(1000):
        store.read(URL, 0, 3)
    assert set(inner.asked) == {0.0}


@pytest.mark.parametrize("error", [NotFoundError("gone"), TransientError("cut")], ids=repr)
def test_other_errors_are_no_throttles(
    store: LimitedStore, inner: Strict, limits: RateLimits, error: Exception
) -> None:
    inner.error = error
    with pytest.raises(type(error)):
        store.read(URL, 0, 3)
    assert [use.throttled for use in limits.report()] == [0]


def test_a_turn_that_comes_too_late_fails_as_throttled_without_a_request(
    store: LimitedStore, inner: Strict, limits: RateLimits
) -> None:
    limits.set({"s3://bucket/train": 0.05})
    store.read(URL, 0, 3)
    with pytest.raises(ThrottledError, match="no turn within 10 s"):
        store.read(URL, 0, 3)
    assert len(inner.asked) == 1
    assert inner.now_s == 0.0
    assert [(use.requests, use.throttled, use.waited) for use in limits.report()] == [(1, 0, 1)]


def test_a_limit_that_falls_while_one_waits_is_kept(store: LimitedStore, inner: Strict, limits: RateLimits) -> None:
    limits.set({"s3://bucket/train": 0.25})
    store.read(URL, 0, 3)
    calm = inner.sleep

    def sleep(seconds: float) -> None:
        calm(seconds)
        limits.set({"s3://bucket/train": 0.5})

    LimitedStore(inner, limits, max_wait_s=10.0, sleep=sleep).read(URL, 0, 3)
    assert inner.asked == pytest.approx([0.0, 2.5])  # a quarter of a token in the first second


def test_who_leaves_gives_his_turn_back(inner: Strict, limits: RateLimits) -> None:
    limits.set({"s3://bucket/train": 1.0})

    def sleep(seconds: float) -> None:
        raise ClosedError("closed")

    store = LimitedStore(inner, limits, sleep=sleep)
    store.read(URL, 0, 3)
    with pytest.raises(ClosedError):
        store.read(URL, 0, 3)
    assert limits.wait_for(limits.ask(URL)) == pytest.approx(1.0)
    assert limits.limit_of(URL) < math.inf
