"""Files on a local or mounted disk.

A read opens, reads and closes: the number of descriptors never exceeds the number of threads that read, a file
that was replaced is seen at once, and nothing is shared with a forked child.
"""

# names are raw strings that pathlib would change, and this is the hot path
# ruff: noqa: PTH103, PTH105, PTH108, PTH116, PTH118, PTH120

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import uuid
from collections.abc import Iterator, Sequence

from stoker.errors import AccessError, ChangedError, NotFoundError, StorageError, TransientError
from stoker.storage.peek import MAX_NAMES
from stoker.storage.store import ObjectInfo
from stoker.storage.urls import local_path, normalize

_PASSING = frozenset(
    {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ENFILE, errno.EMFILE}
)
_TEMPORARY = ".stoker-"


class FileStore:
    """Blocking access to local files; one attempt per call, safe from any number of threads."""

    def head(self, url: str) -> ObjectInfo:
        path = local_path(url)
        with _translated(url):
            status = os.stat(path)
        if not _is_file(status):
            raise StorageError(f"{normalize(url)} is not a file; for a folder of pictures take stoker.files(…)")
        return _info(path, status)

    def list(self, prefix: str, *, max_depth: int | None = None) -> Iterator[ObjectInfo]:
        """All files whose URL begins with ``prefix``, sorted; links to folders are followed, loops are not."""
        path = local_path(prefix)
        with _translated(prefix):
            found = sorted(_walk(os.path.dirname(path), path, max_depth))
        for name in found:
            with contextlib.suppress(FileNotFoundError):  # removed since the folder was read
                status = os.stat(name)
                if _is_file(status):
                    yield _info(name, status)

    def peek(self, folder: str) -> Sequence[str]:
        """Names in the folder itself."""
        try:
            with os.scandir(local_path(folder)) as entries:
                return sorted(entry.name for entry in itertools.islice(entries, MAX_NAMES))
        except OSError:
            return []

    def read(self, url: str, start: int, stop: int, version: str = "") -> memoryview:
        """The bytes ``[start, stop)``, fewer only at the end of the file.

        Raises ChangedError if ``version`` is a time of modification, as ``head`` gives, and not that of the open file.
        """
        with _translated(url):
            descriptor = os.open(local_path(url), os.O_RDONLY | os.O_CLOEXEC)
            try:
                if version.isdigit():
                    _check_version(url, descriptor, version)
                return memoryview(_read_fully(descriptor, start, stop))
            finally:
                os.close(descriptor)

    def write(self, url: str, payload: bytes) -> None:
        """Put a whole file: readers see the old one or the new one; missing folders are made."""
        path = local_path(url)
        folder = os.path.dirname(path)
        temporary = os.path.join(folder, f"{_TEMPORARY}{uuid.uuid4().hex}.tmp")
        with _translated(url):
            os.makedirs(folder, exist_ok=True)
            try:
                _write_new(temporary, payload)
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary)
                raise


def _check_version(url: str, descriptor: int, version: str) -> None:
    found = _version(os.fstat(descriptor))
    if found != version:
        raise ChangedError(
            f"{normalize(url)} was changed: modification time {version} ns was expected, found {found} ns. "
            "Index it again, or put the old file back"
        )


def _read_fully(descriptor: int, start: int, stop: int) -> bytes:
    first = os.pread(descriptor, stop - start, start)
    if len(first) == stop - start or not first:
        return first
    parts = [first]  # one call reads 2 GiB at most, and less when a signal came or the file ends
    position = start + len(first)
    while position < stop and (part := os.pread(descriptor, stop - position, position)):
        parts.append(part)
        position += len(part)
    return b"".join(parts)


def _write_new(path: str, payload: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        rest = memoryview(payload)
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(descriptor)


def _walk(folder: str, prefix: str, max_depth: int | None, above: tuple[tuple[int, int], ...] = ()) -> Iterator[str]:
    try:
        status = os.stat(folder)
        with os.scandir(folder) as scanned:
            entries = list(scanned)  # the descriptor is closed before the folders below are opened
    except (FileNotFoundError, NotADirectoryError):
        return
    identity = (status.st_dev, status.st_ino)
    if identity in above:
        return
    for entry in entries:
        if not _may_match(entry.path, prefix):
            continue
        if entry.is_dir():
            if max_depth is None or len(above) < max_depth:
                yield from _walk(entry.path, prefix, max_depth, (*above, identity))
        elif entry.path.startswith(prefix) and not entry.name.startswith(_TEMPORARY):
            yield entry.path


def _may_match(path: str, prefix: str) -> bool:
    return path.startswith(prefix) or prefix.startswith(path + "/")


def _is_file(status: os.stat_result) -> bool:
    return (status.st_mode & 0o170000) == 0o100000


def _info(path: str, status: os.stat_result) -> ObjectInfo:
    return ObjectInfo(f"file://{path}", status.st_size, _version(status))


def _version(status: os.stat_result) -> str:
    return str(status.st_mtime_ns)


@contextlib.contextmanager
def _translated(url: str) -> Iterator[None]:
    """The one place where the system's errors become ours."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(f"nothing lies at {normalize(url)}") from error
    except PermissionError as error:
        raise AccessError(f"no permission for {normalize(url)}: {error.strerror}") from error
    except IsADirectoryError as error:
        raise StorageError(f"{normalize(url)} is a folder, not a file") from error
    except StorageError:
        raise
    except OSError as error:
        kind = TransientError if error.errno in _PASSING else StorageError
        raise kind(f"{normalize(url)}: {error.strerror or error}") from error
