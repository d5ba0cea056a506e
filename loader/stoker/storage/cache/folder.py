"""The folder of a cache on disk: a marker that says whose it is, and the names of all that lies in it."""

# names are built a thousand times a second
# ruff: noqa: PTH118

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stoker.errors import SpecError
from stoker.storage.cache.budget import Space
from stoker.storage.cache.key import DIGEST_BYTES

MARKER: Final = "STOKER_CACHE"
_TEXT: Final = (
    "stoker cache 1\nStoker made what lies here and may delete it. Remove the whole folder when no job uses it.\n"
)
_ENTRY: Final = re.compile(rf"([0-9a-f]{{{2 * DIGEST_BYTES}}})\.range")
_PART: Final = re.compile(rf"([0-9a-f]{{{2 * DIGEST_BYTES}}})\.([0-9a-f]{{1,16}})\.part")


@dataclass(frozen=True, slots=True)
class Folder:
    """Paths below ``root``. Nothing else is made, and only names of these forms are ever deleted."""

    root: str

    @property
    def marker(self) -> str:
        """Also the file that processes lock."""
        return os.path.join(self.root, MARKER)

    @property
    def ledger(self) -> str:
        return os.path.join(self.root, "ledger.sqlite")

    def entry(self, digest: bytes) -> str:
        return os.path.join(self.root, "entries", digest.hex() + ".range")

    def part(self, digest: bytes, owner: int) -> str:
        """An entry while it is being written."""
        return os.path.join(self.root, "parts", f"{digest.hex()}.{owner:x}.part")

    def entries(self) -> Iterator[tuple[bytes, int]]:
        """Digests and sizes of all entries that lie there."""
        with os.scandir(os.path.join(self.root, "entries")) as found:
            for each in found:
                name = _ENTRY.fullmatch(each.name)
                if name and each.is_file(follow_symlinks=False):
                    with contextlib.suppress(FileNotFoundError):
                        yield bytes.fromhex(name[1]), each.stat(follow_symlinks=False).st_size

    def parts(self) -> Iterator[tuple[bytes, int]]:
        """Digests and owners of all entries that are being written, or were when their owner died."""
        with os.scandir(os.path.join(self.root, "parts")) as found:
            for each in found:
                if name := _PART.fullmatch(each.name):
                    yield bytes.fromhex(name[1]), int(name[2], 16)

    def space(self) -> Space:
        found = os.statvfs(self.root)
        return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, found.f_files, found.f_favail)


def prepare(path: str) -> Folder:
    """Make the folder, or take one that was made here before; SpecError for one that holds anything else."""
    root = Path(path).expanduser().absolute()
    folder = Folder(str(root))
    if root.exists() and not root.is_dir():
        raise SpecError(
            f"the cache folder {root} is a file: give the path of a folder that is empty or does not exist yet"
        )
    root.mkdir(parents=True, exist_ok=True)
    _mark(root)
    for name in ("entries", "parts"):
        (root / name).mkdir(exist_ok=True)
    return folder


def remove(path: str) -> None:
    """Delete a file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        Path(path).unlink()


def _mark(root: Path) -> None:
    if _is_ours(root):
        return
    # A disk's own root has a folder lost+found.
    found = sorted(each.name for each in root.iterdir() if each.name not in {"lost+found", MARKER})
    if _is_ours(root):  # another process has begun between the two looks
        return
    marker = root / MARKER
    if os.path.lexists(marker):
        raise SpecError(
            f"{marker} does not say that this version of Stoker made the folder: expected {_TEXT.splitlines()[0]!r}."
            " Give another folder, or remove this one if nothing needs it"
        )
    if found:
        raise SpecError(
            f"{root} cannot be a cache folder: expected an empty folder or one that a cache made (with a file {MARKER}"
            f" in it), found {len(found):,} others such as {found[0]!r}, which a cache must not mix with what it"
            f" deletes. Give a folder of its own, such as {root / 'stoker-cache'}"
        )
    with contextlib.suppress(FileExistsError), marker.open("x") as file:
        file.write(_TEXT)


def _is_ours(root: Path) -> bool:
    marker = root / MARKER
    # An empty marker is one that another process is just writing.
    return marker.is_file() and not marker.is_symlink() and marker.read_text(errors="replace") in {"", _TEXT}
