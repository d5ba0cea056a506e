"""Compares bodies with the MD5 that many stores give as the ETag of an object."""

from __future__ import annotations

import hashlib
import re
import threading

from stoker.storage.fork_news import tell_after_fork

_MD5 = re.compile(r"[0-9a-f]{32}")
_MAX_SUSPECTS = 64


class TagCheck:
    """Whether the ETags of one bucket are MD5s of what lies there. Safe for many threads.

    An ETag that looks like an MD5 need not be one (S3 with SSE-KMS or SSE-C, many web servers), which nothing in the
    answer tells. So a body that differs is suspected of being corrupt and is read again; if the same bytes come once
    more they were not flipped on the way, and from then on no ETag of this bucket is taken for an MD5.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._suspects: dict[str, str] = {}  # path → MD5 of a body that is not the ETag
        self._are_md5 = True
        tell_after_fork(self)

    def accepts(self, path: str, tag: str, body: memoryview) -> bool:
        """Whether ``body``, all of the object at ``path``, may be passed on; if not, it must be read again."""
        if not self._are_md5 or not _MD5.fullmatch(tag):
            return True
        found = hashlib.md5(body, usedforsecurity=False).hexdigest()  # without the GIL
        with self._lock:
            suspect = self._suspects.pop(path, None)
            if found == tag:
                return True
            if found == suspect:
                self._are_md5 = False
                return True
            self._suspects[path] = found
            if len(self._suspects) > _MAX_SUSPECTS:
                del self._suspects[next(iter(self._suspects))]
            return False

    def after_fork(self) -> None:
        self._lock = threading.Lock()
