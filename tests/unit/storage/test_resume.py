"""A read that broke off goes on where it broke."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import ChangedError, TransientError
from stoker.storage.resume import Progress
from stoker.storage.retry import CutAnswerError, Retry, RetryingStore, RetryPolicy
from stoker.storage.store import ObjectInfo

WHOLE = bytes(index * 7 % 251 for index in range(2000))
URL = "s3://bucket/x.tar"


@dataclass
class Cutting:
    """One object, whose bodies break off after as many bytes as the next cut says; None breaks nothing.

    A text instead of a cut replaces the object, which then is of that version and reversed.
    """

    cuts: list[int | str | None]
    version: str = "v1"
    payload: bytes = WHOLE
    tells_version: bool = True
    now_s: float = 0.0
    asked: list[tuple[int, int, str]] = field(default_factory=list)

    def head(self, url: str) -> ObjectInfo:
        return ObjectInfo(url, len(self.payload), self.version)

    def list(self, prefix: str, *, max_depth: int | None = None) -> Iterator[ObjectInfo]:
        yield self.head(prefix)

    def peek(self, folder: str) -> Sequence[str]:
        return []

    def write(self, url: str, payload: bytes) -> None:
        self.payload = payload

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        self.asked.append((start, stop, version))
        self.now_s += 1.0
        cut = self.cuts.pop(0) if self.cuts else None
        if isinstance(cut, str):
            self.version, self.payload, cut = cut, self.payload[::-1], None
        if version not in ("", self.version):
            raise ChangedError(f"{url} was replaced: {version} was expected, {self.version} is there now")
        if cut is not None and cut < stop - start:
            told = self.version if self.tells_version else ""
            raise CutAnswerError("the body broke off", memoryview(self.payload)[start : start + cut], told)
        return memoryview(self.payload)[start:stop]


def insisting(inner: Cutting, policy: RetryPolicy | None = None, seen: list[Retry] | None = None) -> RetryingStore:
    return RetryingStore(
        inner,
        policy or RetryPolicy(max_attempts=4, attempt_s=1.0, first_wait_s=0.0),
        clock=lambda: inner.now_s,
        sleep=lambda _: None,
        on_retry=None if seen is None else seen.append,
    )


def test_only_the_rest_is_asked_for_and_of_the_same_version() -> None:
    inner, seen = Cutting([700, 300]), list[Retry]()
    assert bytes(insisting(inner, seen=seen).read(URL, 100, 2000)) == WHOLE[100:]
    assert inner.asked == [(100, 2000, ""), (800, 2000, "v1"), (1100, 2000, "v1")]
    assert [retry.kept_bytes for retry in seen] == [700, 300]


@given(st.integers(0, 2000), st.integers(0, 2000), st.lists(st.integers(0, 2000), max_size=20))
def test_whole_wherever_it_breaks(first: int, second: int, cuts: list[int]) -> None:
    start, stop = sorted((first, second))
    inner = Cutting(list(cuts))
    store = insisting(inner, RetryPolicy(max_attempts=30, attempt_s=1.0, first_wait_s=0.0))
    assert bytes(store.read(URL, start, stop)) == WHOLE[start:stop]
    came = sum(cut for cut, (begin, end, _) in zip(cuts, inner.asked, strict=False) if cut < end - begin)
    assert came <= stop - start  # no byte came twice


def test_attempts_that_bring_something_are_bounded_by_the_deadline_alone() -> None:
    inner = Cutting([100] * 15)
    assert bytes(insisting(inner).read(URL, 0, 2000)) == WHOLE
    inner = Cutting([1] * 1000)
    with pytest.raises(TransientError, match=r"no good answer in \d+ attempts over 120\.0 s; the last: the body broke"):
        insisting(inner).read(URL, 0, 2000)
    assert inner.now_s <= 120.0


def test_attempts_that_bring_nothing_are_counted() -> None:
    inner = Cutting([100, 0, 0, 0, 0])
    with pytest.raises(TransientError, match="in 5 attempts"):
        insisting(inner).read(URL, 0, 2000)


def test_a_single_attempt_stays_one() -> None:
    inner = Cutting([100])
    with pytest.raises(TransientError, match="in 1 attempt"):
        insisting(inner, RetryPolicy(max_attempts=1)).read(URL, 0, 2000)


def test_bytes_of_an_unknown_version_are_not_mixed_with_others() -> None:
    inner = Cutting([700], tells_version=False)
    assert bytes(insisting(inner).read(URL, 0, 2000)) == WHOLE
    assert inner.asked == [(0, 2000, "")] * 2


def test_an_object_replaced_meanwhile_is_read_anew_by_those_who_take_any_version() -> None:
    inner = Cutting([700, "v2"])
    assert bytes(insisting(inner).read(URL, 0, 2000)) == WHOLE[::-1]
    assert inner.asked == [(0, 2000, ""), (700, 2000, "v1"), (0, 2000, "")]


def test_an_object_replaced_meanwhile_is_an_error_for_those_who_want_the_old_one() -> None:
    with pytest.raises(ChangedError, match="v1 was expected, v2 is there"):
        insisting(Cutting([700, "v2"])).read(URL, 0, 2000, "v1")


def test_a_changed_object_is_asked_for_once() -> None:
    inner = Cutting([])
    with pytest.raises(ChangedError):
        insisting(inner).read(URL, 0, 2000, "v0")
    assert len(inner.asked) == 1


def test_what_came_at_once_is_not_copied() -> None:
    body = memoryview(WHOLE)
    assert Progress(0, "").finish(body) is body
