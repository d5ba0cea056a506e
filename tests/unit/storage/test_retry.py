"""A second try under a clock, a sleep and a chance that the test gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import AccessError, ChangedError, NotFoundError, SpecError, StorageError, TransientError
from stoker.storage.retry import Retry, RetryingStore, RetryPolicy, ShortAnswerError, ThrottledError, wait_before_retry
from stoker.storage.store import ObjectInfo

URL = "s3://bucket/x.tar"
Answer = bytes | Exception


@dataclass
class ScriptedStore:
    """Answers reads from a list; every attempt takes ``attempt_s`` of the time it keeps."""

    answers: list[Answer]
    size_bytes: int = 1000
    attempt_s: float = 1.0
    now_s: float = 0.0
    slept_s: list[float] = field(default_factory=list)

    def head(self, url: str) -> ObjectInfo:
        return ObjectInfo(url, self.size_bytes, "v")

    def list(self, prefix: str, *, max_depth: int | None = None) -> Iterator[ObjectInfo]:
        answer = self._next()
        yield ObjectInfo(prefix, len(answer), "v")

    def peek(self, folder: str) -> Sequence[str]:
        return []

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        return memoryview(self._next())

    def write(self, url: str, payload: bytes) -> None:
        self._next()

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds

    def _next(self) -> bytes:
        self.now_s += self.attempt_s
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def wrapped(inner: ScriptedStore, policy: RetryPolicy | None = None, seen: list[Retry] | None = None) -> RetryingStore:
    return RetryingStore(
        inner,
        policy or RetryPolicy(),
        clock=lambda: inner.now_s,
        sleep=inner.sleep,
        uniform=lambda: 0.0,
        on_retry=None if seen is None else seen.append,
    )


@pytest.mark.parametrize("bad", [b"", b"123", b"12345678901", TransientError("cut"), ThrottledError("HTTP 503")])
def test_what_is_short_long_or_failed_is_read_again(bad: Answer) -> None:
    inner = ScriptedStore([bad, bad, b"0123456789"])
    assert bytes(wrapped(inner).read(URL, 5, 15)) == b"0123456789"
    assert len(inner.slept_s) == 2


@pytest.mark.parametrize("error", [NotFoundError("gone"), AccessError("no"), StorageError("odd")])
def test_what_cannot_heal_is_raised_at_once(error: Exception) -> None:
    inner = ScriptedStore([error, b"0123456789"])
    with pytest.raises(type(error)) as caught:
        wrapped(inner).read(URL, 5, 15)
    assert caught.value is error
    assert inner.slept_s == []


def test_giving_up_names_url_range_attempts_time_and_reason() -> None:
    inner = ScriptedStore([TransientError("the answer was cut on the way")] * 3)
    with pytest.raises(
        TransientError,
        match=r"s3://bucket/x\.tar bytes \[5, 15\): no good answer in 3 attempts over 3\.\d s; the last: the answer",
    ):
        wrapped(inner, RetryPolicy(max_attempts=3)).read(URL, 5, 15)


def test_throttling_leaves_as_a_transient_error_and_is_seen_by_the_caller() -> None:
    seen: list[Retry] = []
    inner = ScriptedStore([ThrottledError("HTTP 503 SlowDown")] * 2)
    with pytest.raises(TransientError) as caught:
        wrapped(inner, RetryPolicy(max_attempts=2, first_wait_s=0.5), seen).read(URL, 5, 15)
    assert type(caught.value) is TransientError
    assert seen == [Retry(f"{URL} bytes [5, 15)", 1, 0.25, True, "HTTP 503 SlowDown")]


def test_an_object_that_ends_early_is_no_reason_to_insist() -> None:
    inner = ScriptedStore([b"123", b"123"], size_bytes=8)
    with pytest.raises(StorageError, match=r"x\.tar has 8 bytes, bytes \[5, 15\)") as caught:
        wrapped(inner).read(URL, 5, 15)
    assert not isinstance(caught.value, TransientError)
    assert inner.slept_s == []


def test_an_object_that_ends_early_and_is_of_another_version_was_replaced() -> None:
    with pytest.raises(ChangedError, match=r"x\.tar was replaced: version v0 was expected, v is there now"):
        wrapped(ScriptedStore([ShortAnswerError("HTTP 416")], size_bytes=8)).read(URL, 9, 15, "v0")
    with pytest.raises(StorageError, match="has 8 bytes"):
        wrapped(ScriptedStore([ShortAnswerError("HTTP 416")], size_bytes=8)).read(URL, 9, 15, "v")


def test_a_416_of_an_object_that_is_long_enough_heals() -> None:
    inner = ScriptedStore([ShortAnswerError("HTTP 416"), b"0123456789"])
    assert bytes(wrapped(inner).read(URL, 5, 15)) == b"0123456789"


def test_the_deadline_ends_the_attempts() -> None:
    policy = RetryPolicy(max_attempts=1000, attempt_s=30.0, deadline_s=120.0, first_wait_s=2.0)
    inner = ScriptedStore([TransientError("stalled")] * 1000, attempt_s=30.0)
    with pytest.raises(TransientError, match="stalled"):
        wrapped(inner, policy).read(URL, 0, 10)
    assert inner.now_s <= 120.0


def test_a_sleep_that_raises_leaves_at_once() -> None:
    class ClosingError(Exception):
        pass

    def leave(_: float) -> None:
        raise ClosingError

    inner = ScriptedStore([TransientError("cut"), b"0123456789"])
    with pytest.raises(ClosingError):
        RetryingStore(inner, RetryPolicy(), sleep=leave).read(URL, 0, 10)


def test_an_empty_range_asks_nobody() -> None:
    assert bytes(wrapped(ScriptedStore([])).read(URL, 7, 7)) == b""


def test_impossible_ranges_are_the_callers_fault() -> None:
    with pytest.raises(SpecError):
        wrapped(ScriptedStore([])).read(URL, 7, 6)


def test_listings_and_writes_are_repeated_whole() -> None:
    inner = ScriptedStore([TransientError("cut"), b"ab"])
    assert list(wrapped(inner).list("s3://bucket/")) == [ObjectInfo("s3://bucket/", 2, "v")]
    inner = ScriptedStore([TransientError("cut"), b""])
    wrapped(inner).write(URL, b"payload")
    assert inner.answers == []


def test_secrets_of_a_signed_address_are_not_in_the_text() -> None:
    inner = ScriptedStore([TransientError("cut")])
    with pytest.raises(TransientError) as caught:
        wrapped(inner, RetryPolicy(max_attempts=1)).read("https://h/x?sig=SECRET", 0, 1)
    assert "SECRET" not in str(caught.value)


POLICIES = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 20),
    attempt_s=st.floats(0, 100),
    deadline_s=st.floats(0, 1000),
    first_wait_s=st.floats(0, 10),
    max_wait_s=st.floats(0, 60),
)


@given(POLICIES, st.integers(1, 30), st.floats(0, 2000), st.booleans(), st.floats(0, 1, exclude_max=True))
def test_waits_are_bounded_and_end_in_time(
    policy: RetryPolicy, num_attempts: int, elapsed_s: float, is_throttled: bool, uniform: float
) -> None:
    wait_s = wait_before_retry(
        policy, num_attempts=num_attempts, elapsed_s=elapsed_s, is_throttled=is_throttled, uniform=uniform
    )
    if wait_s is None:
        return
    assert num_attempts < policy.max_attempts
    assert 0 <= wait_s <= min(policy.max_wait_s, policy.first_wait_s * 2 ** (num_attempts - 1))
    assert elapsed_s + wait_s + policy.attempt_s <= policy.deadline_s


@given(st.floats(0, 1, exclude_max=True))
def test_throttled_requests_wait_longer(uniform: float) -> None:
    waits = [
        wait_before_retry(RetryPolicy(), num_attempts=3, elapsed_s=0.0, is_throttled=is_throttled, uniform=uniform)
        for is_throttled in (False, True)
    ]
    assert waits == [pytest.approx(0.4 * uniform), pytest.approx(0.2 + 0.2 * uniform)]
