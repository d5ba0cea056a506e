"""What is wrapped round a store, and in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stoker.errors import ChangedError, SpecError
from stoker.storage.meter import Meter
from stoker.storage.open import open_store
from stoker.storage.own_options import split_own
from stoker.storage.rate import RateLimits

CLOUD = ["RetryingStore", "HedgedStore", "LimitedStore", "MeteredStore"]
OBJECTS = ["FlightStore", "ParallelStore", *CLOUD]


def layers(store: Any) -> list[str]:
    found = [type(store).__name__]
    return found + layers(store._inner) if hasattr(store, "_inner") else found


@pytest.mark.parametrize("url", ["s3://bucket/x", "gs://bucket/x", "https://host/x"])
def test_objects_have_every_layer(url: str) -> None:
    assert layers(open_store(url, meter=Meter(), limits=RateLimits())) == [*OBJECTS, "ObjectStore"]


def test_without_a_meter_and_limits_their_layers_are_left_out() -> None:
    expected = [name for name in OBJECTS if name not in ("LimitedStore", "MeteredStore")]
    assert layers(open_store("s3://bucket/x")) == [*expected, "ObjectStore"]


def test_files_are_read_in_the_callers_thread_and_as_fast_as_they_can() -> None:
    store = open_store("/data/x", meter=Meter(), limits=RateLimits())
    assert layers(store) == ["RetryingStore", "MeteredStore", "FileStore"]


def test_other_file_systems_are_counted() -> None:
    assert layers(open_store("memory://x", meter=Meter())) == ["RetryingStore", "MeteredStore", "FsspecStore"]


@pytest.mark.parametrize("url, innermost", [("/data/x", "FileStore"), ("memory://x", "FsspecStore")])
def test_a_store_made_to_misbehave_is_treated_as_a_cloud(url: str, innermost: str) -> None:
    store = open_store(url, {"chaos": "latency_ms=1"}, meter=Meter(), limits=RateLimits())
    assert layers(store) == [*CLOUD, "ChaosStore", innermost]


def test_chaos_stands_next_to_the_objects() -> None:
    store = open_store("s3://bucket/x", {"chaos": "latency_ms=1"}, meter=Meter(), limits=RateLimits())
    assert layers(store) == [*OBJECTS, "ChaosStore", "ObjectStore"]


def test_no_attempt_can_outlast_the_deadline_though_it_waits_for_its_turn() -> None:
    store: Any = open_store("s3://bucket/x", {"timeout": "7s"}, limits=RateLimits())
    retrying = store._inner._inner
    assert retrying._policy.attempt_s == 14.0
    assert retrying._inner._inner._max_wait_s == 7.0


@pytest.mark.parametrize("options", [{"checksum": "md5"}, {"Checksum": ""}, {"checksum": False}])
def test_an_unknown_kind_of_checksum_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="checksum should be 'auto' or 'off'"):
        open_store("s3://bucket/x", options)


def test_own_options_are_split_from_the_others() -> None:
    own, others = split_own({"Chaos": "slow", "checksum": "off", "region": "x"})
    assert (own.chaos, own.checks_bodies, others) == ("slow", False, {"region": "x"})


def test_the_version_goes_through_all_layers(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc")
    store = open_store(str(path), meter=Meter())
    assert bytes(store.read(str(path), 0, 2, store.head(str(path)).version)) == b"ab"
    with pytest.raises(ChangedError):
        store.read(str(path), 0, 2, "17")
