"""Schemes of fsspec: which there are, and what their errors become."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from stoker.errors import AccessError, MissingDependencyError, SpecError, StorageError, TransientError
from stoker.storage.fsspec_store import FsspecStore
from stoker.storage.open import open_store
from stoker.storage.retry import RetryPolicy


class BrokenFileSystem(MemoryFileSystem):  # type: ignore[misc]  # fsspec is not typed
    """A file system that raises what the path names."""

    protocol = "brokenfs"
    errors: ClassVar[dict[str, Exception]] = {
        "permission": PermissionError("no"),
        "timeout": TimeoutError("slow"),
        "odd": KeyError("odd"),
        "bad": ValueError("cannot"),
        "unset": NotImplementedError(),
    }

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: object) -> bytes:
        raise self.errors[path.rpartition("/")[2]]


fsspec.register_implementation("brokenfs", BrokenFileSystem, clobber=True)


@pytest.mark.parametrize(
    "name, kind",
    [
        ("permission", AccessError),
        ("timeout", TransientError),
        ("odd", TransientError),
        ("bad", StorageError),
        ("unset", StorageError),
    ],
)
def test_errors_of_plugins_become_ours(name: str, kind: type[StorageError]) -> None:
    with pytest.raises(StorageError, match=f"brokenfs://x/{name}") as caught:
        FsspecStore("brokenfs", {}).read(f"brokenfs://x/{name}", 0, 1)
    assert type(caught.value) is kind


def test_unknown_schemes_are_named_with_the_nearest() -> None:
    with pytest.raises(SpecError, match=r"no store knows the scheme s33://; did you mean s3://"):
        open_store("s33://bucket/x")


def test_a_scheme_whose_package_is_missing() -> None:
    with pytest.raises(MissingDependencyError, match="smb:// needs another package"):
        open_store("smb://host/x")


def test_chained_urls_reach_fsspec() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/chained/x.bin", b"0123456789")
    store = open_store("simplecache::memory://chained/x.bin", policy=RetryPolicy(max_attempts=1))
    assert bytes(store.read("simplecache::memory://chained/x.bin", 2, 5)) == b"234"


def test_peek_shows_names_or_nothing() -> None:
    fsspec.filesystem("memory").pipe_file("/peek/a/x.bin", b"")
    assert FsspecStore("memory", {}).peek("memory://peek/") == ["a"]
    assert FsspecStore("memory", {}).peek("memory://no-such/") == []


def test_a_time_is_one_version_in_every_form() -> None:
    from stoker.storage.fsspec_store import _version

    moment = datetime(2026, 1, 2, tzinfo=UTC)
    assert _version(moment) == _version(moment.timestamp())


def test_a_version_is_not_checked() -> None:
    fsspec.filesystem("memory").pipe_file("/unversioned/x", b"abc")
    assert bytes(FsspecStore("memory", {}).read("memory://unversioned/x", 0, 3, "another")) == b"abc"
