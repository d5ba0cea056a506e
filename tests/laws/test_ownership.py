"""What must hold of who keeps which range for the fleet."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from stoker.storage.store import ObjectRange
from stoker_service.members import Member
from stoker_service.worker.ownership import Owners, key_of

names = st.text("abcdefghij-0123456789", min_size=1, max_size=12)
fleets = st.sets(names, min_size=1, max_size=12)
keys = st.lists(st.text(max_size=20), max_size=50)


def owners(fleet: set[str]) -> Owners:
    return Owners(Member(name, f"grpc://{name}:1") for name in fleet)


def owner(found: Owners, key: str) -> str:
    member = found.of(key)
    assert member is not None
    return member.worker_id


@given(fleets, names, keys)
def test_one_that_comes_takes_its_share_and_nothing_else_moves(fleet: set[str], comer: str, found: list[str]) -> None:
    before, after = owners(fleet - {comer}), owners(fleet | {comer})
    for key in found:
        if owner(after, key) != comer:
            assert owner(after, key) == owner(before, key)


@given(st.sets(names, min_size=2, max_size=12), st.data(), keys)
def test_one_that_goes_leaves_its_share_and_nothing_else_moves(
    fleet: set[str], data: st.DataObject, found: list[str]
) -> None:
    goer = data.draw(st.sampled_from(sorted(fleet)))
    before, after = owners(fleet), owners(fleet - {goer})
    for key in found:
        if owner(before, key) != goer:
            assert owner(after, key) == owner(before, key)


@given(st.lists(names, min_size=1, max_size=12, unique=True), st.randoms(use_true_random=False), keys)
def test_the_order_in_which_members_are_told_says_nothing(fleet: list[str], chance: object, found: list[str]) -> None:
    shuffled = sorted(fleet, key=lambda _: chance.random())  # type: ignore[attr-defined]  # Hypothesis has no type for it
    one, other = Owners(Member(name, "") for name in fleet), Owners(Member(name, "") for name in shuffled)
    assert [one.of(key) for key in found] == [other.of(key) for key in found]


@given(st.integers(1, 12), st.integers(0, 1 << 30))
def test_shares_are_even(num_members: int, seed: int) -> None:
    fleet = owners({f"worker-{seed}-{number}" for number in range(num_members)})
    num_keys = 400 * num_members
    counts = Counter(owner(fleet, f"s3://bucket/shard-0001.tar {start << 20}") for start in range(num_keys))
    assert len(counts) == num_members
    assert min(counts.values()) > 260  # seven deviations of the binomial
    assert max(counts.values()) < 560


@given(keys)
def test_without_members_nothing_has_an_owner(found: list[str]) -> None:
    assert [Owners([]).of(key) for key in found] == [None] * len(found)


def test_the_chunks_of_a_shard_are_spread_and_the_files_of_a_chunk_are_together() -> None:
    chunks = [ObjectRange("s3://bucket/0001.tar", start << 20, (start + 1) << 20, "v") for start in range(64)]
    assert len({key_of(chunk, by_name=False) for chunk in chunks}) == 64
    files = [ObjectRange(f"s3://bucket/n01/n01_{number:05d}.JPEG", 0, 10, "v") for number in range(320, 384)]
    assert len({key_of(file, by_name=True) for file in files}) == 1
    other = ObjectRange("s3://bucket/n02/n02_00320.JPEG", 0, 10, "v")
    assert key_of(other, by_name=True) != key_of(files[0], by_name=True)


def test_one_object_at_two_servers_is_two_keys() -> None:
    here, there = (ObjectRange("s3://bucket/x", 0, 10, "v", endpoint) for endpoint in ("http://a", "http://b"))
    for by_name in (True, False):
        assert key_of(here, by_name=by_name) != key_of(there, by_name=by_name)
