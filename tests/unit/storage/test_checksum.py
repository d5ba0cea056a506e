"""Bodies are compared with an ETag that looks like an MD5, until it proves to be none."""

from __future__ import annotations

import hashlib
import os

import pytest

from stoker.storage.checksum import TagCheck

GOOD = memoryview(b"as it was written")
BAD = memoryview(b"as it was wrItten")
TAG = hashlib.md5(GOOD).hexdigest()


def test_a_good_body_passes_and_a_flipped_one_does_not() -> None:
    check = TagCheck()
    assert check.accepts("x", TAG, GOOD)
    assert not check.accepts("x", TAG, BAD)
    assert check.accepts("x", TAG, GOOD)


@pytest.mark.parametrize("tag", ["", TAG + "-7", TAG.upper(), TAG[1:], "0x8DE2F4", "W/" + TAG])
def test_a_tag_that_is_no_md5_says_nothing(tag: str) -> None:
    assert TagCheck().accepts("x", tag, BAD)


def test_the_same_bytes_twice_mean_that_the_tags_of_this_bucket_are_no_md5s() -> None:
    check = TagCheck()
    assert [check.accepts("x", TAG, BAD) for _ in range(3)] == [False, True, True]
    assert check.accepts("y", TAG, BAD)


def test_two_different_flips_are_two_corrupt_bodies() -> None:
    check = TagCheck()
    assert [check.accepts("x", TAG, memoryview(body)) for body in (b"one", b"two", b"one")] == [False] * 3


def test_flips_in_different_objects_do_not_add_up() -> None:
    check = TagCheck()
    assert [check.accepts(path, TAG, BAD) for path in "xyz"] == [False] * 3


def test_a_good_body_clears_the_suspicion() -> None:
    check = TagCheck()
    assert [check.accepts("x", TAG, body) for body in (BAD, GOOD, BAD)] == [False, True, False]


def test_what_is_remembered_is_bounded() -> None:
    check = TagCheck()
    for number in range(1000):
        check.accepts(str(number), TAG, BAD)
    assert len(check._suspects) <= 64


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_is_not_stuck() -> None:
    check = TagCheck()
    with check._lock:
        pid = os.fork()
        if pid == 0:
            os._exit(7 if check.accepts("x", TAG, GOOD) else 1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 7
