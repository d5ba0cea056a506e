"""Every scheme that fsspec knows and obstore does not, such as ``memory://``, ``hf://`` or ``sftp://``.

fsspec keeps one file system per process and arguments, and makes a new one after a fork; nothing is kept here.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import fsspec

from stoker.errors import AccessError, MissingDependencyError, NotFoundError, SpecError, StorageError, TransientError
from stoker.storage.peek import MAX_NAMES
from stoker.storage.store import ObjectInfo
from stoker.storage.urls import scheme_of

_VERSIONS = ("ETag", "etag", "e_tag", "mtime", "modified", "last_modified", "LastModified", "created")


class FsspecStore:
    """Blocking access through an fsspec file system; one attempt per call."""

    def __init__(self, scheme: str, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._check(scheme)

    def head(self, url: str) -> ObjectInfo:
        with _translated(url):
            entry = self._system(url).info(url)
        if entry.get("type") == "directory":
            raise StorageError(f"{url} is a folder, not a file")
        return _info(url, entry)

    def list(self, prefix: str, *, max_depth: int | None = None) -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0] + "/"
        with _translated(prefix):
            system = self._system(prefix)
            root = str(system._strip_protocol(folder)).rstrip("/")
            try:
                entries: dict[str, dict[str, Any]] = system.find(
                    folder, maxdepth=None if max_depth is None else max_depth + 1, detail=True
                )
            except FileNotFoundError:
                entries = {}
        found = (_info(folder + name[len(root) :].lstrip("/"), entry) for name, entry in entries.items())
        yield from sorted((item for item in found if item.url.startswith(prefix)), key=lambda item: item.url)

    def peek(self, folder: str) -> Sequence[str]:
        with _translated(folder):
            try:
                names = self._system(folder).ls(folder, detail=False)
            except FileNotFoundError:
                return []
        return [str(name).rstrip("/").rpartition("/")[2] for name in names[:MAX_NAMES]]

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:  # noqa: ARG002  # cannot be checked
        """The bytes ``[start, stop)``; ``version`` is not checked, since few file systems tell it along with bytes."""
        with _translated(url):
            return memoryview(self._system(url).cat_file(url, start=start, end=stop))

    def write(self, url: str, payload: bytes) -> None:
        """Put a whole file; as atomic as the file system's ``pipe_file``."""
        with _translated(url):
            system = self._system(url)
            system.makedirs(system._parent(url), exist_ok=True)
            system.pipe_file(url, payload)

    def _system(self, url: str) -> Any:  # fsspec is not typed
        system, _ = fsspec.core.url_to_fs(url, **self._options)
        return system

    def _check(self, scheme: str) -> None:
        try:
            fsspec.get_filesystem_class(scheme)
        except ImportError as error:
            raise MissingDependencyError(f"{scheme}:// needs another package: {error}") from error
        except ValueError as error:
            close = difflib.get_close_matches(scheme, ["s3", "gs", "az", "file", *fsspec.available_protocols()], n=1)
            hint = f"; did you mean {close[0]}://?" if close else ""
            raise SpecError(f"no store knows the scheme {scheme}://{hint}") from error


def _info(url: str, entry: Mapping[str, Any]) -> ObjectInfo:
    version = next((entry[name] for name in _VERSIONS if entry.get(name)), "")
    return ObjectInfo(url, int(entry["size"] or 0), _version(version))


def _version(found: object) -> str:
    """One form for a time: some file systems list a number and answer ``info`` with a datetime."""
    return str(found.timestamp() if isinstance(found, datetime) else found)


@contextlib.contextmanager
def _translated(url: str) -> Iterator[None]:
    """The one place where errors of fsspec's file systems become ours."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(f"nothing lies at {url}") from error
    except PermissionError as error:
        raise AccessError(f"the store refused access to {url}: {error}") from error
    except (IsADirectoryError, NotADirectoryError) as error:
        raise StorageError(f"{url}: {error}") from error
    except (TypeError, ValueError, NotImplementedError) as error:
        raise StorageError(f"{url}: the file system {scheme_of(url)}:// cannot do this: {error}") from error
    except Exception as error:  # plugins raise errors of libraries that we do not know
        raise TransientError(f"{url}: {type(error).__name__}: {error}") from error
