"""What a cache may take."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.errors import SpecError


@dataclass(frozen=True, slots=True)
class CacheOptions:
    """Where ranges are kept, and how much room they get.

    ``folder`` is on a local disk, and all processes and jobs that name it share it and its budget; None keeps nothing
    on disk. ``disk_bytes`` (None: half of what is free when the folder is first used) and ``max_files`` (None: half of
    the free inodes) are never exceeded, and ``reserve_bytes`` (None: the greater of 1 GiB and 5 % of the disk, less on
    small disks) are left free for others. ``ram_bytes`` are those of one process. Files on this machine (``file://``)
    are kept only with ``cache_files``, which is for network mounts.
    """

    folder: str | None = None
    disk_bytes: int | None = None
    ram_bytes: int = 0
    max_files: int | None = None
    reserve_bytes: int | None = None
    cache_files: bool = False

    def __post_init__(self) -> None:
        if self.folder is not None:
            self._check_folder(self.folder)
        for name, least in (("disk_bytes", 1), ("ram_bytes", 0), ("max_files", 1), ("reserve_bytes", 0)):
            found = getattr(self, name)
            if found is not None and (not isinstance(found, int) or isinstance(found, bool) or found < least):
                raise SpecError(f"CacheOptions.{name} must be a whole number of at least {least}, not {found!r}")

    @staticmethod
    def _check_folder(folder: object) -> None:
        if not isinstance(folder, str) or not folder:
            raise SpecError(f"CacheOptions.folder is {folder!r}: give the path of a local folder, or None")
        if "://" in folder or folder.lower().startswith("file:"):
            scheme = folder.partition(":")[0]
            raise SpecError(f"CacheOptions.folder is a {scheme}: URL; expected the path of a local folder, not a URL")
