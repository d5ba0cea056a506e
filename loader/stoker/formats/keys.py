"""How a member's name becomes a key with a field.

WebDataset's rule: the base name up to its first dot ends the key (folders stay in it), what follows in lower case is
the field; neighbouring members of one key make one sample. Names that start with ``__x__`` are its metadata. One
difference: WebDataset makes ``a/.hidden.jpg`` the field ``hidden.jpg`` of the key ``a/``; here a hidden file is hidden
in any folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

KeyRule = Literal["first-dot", "last-dot"]
Split = Callable[[str], tuple[str, str] | None]

_METADATA = re.compile(r"__[^/]*__($|/)")


def first_dot(name: str) -> tuple[str, str] | None:
    """``dir.v1/22.05.seg.png`` → ``("dir.v1/22", "05.seg.png")``; None for hidden files, metadata, no dot at all."""
    base = name.rfind("/") + 1
    dot = name.find(".", base)
    return _parts(name, base, dot)


def last_dot(name: str) -> tuple[str, str] | None:
    """``dir.v1/22.05.seg.png`` → ``("dir.v1/22.05.seg", "png")``; None as for :func:`first_dot`."""
    base = name.rfind("/") + 1
    dot = name.rfind(".", base)
    return None if name.startswith(".", base) else _parts(name, base, dot)


SPLITS: dict[KeyRule, Split] = {"first-dot": first_dot, "last-dot": last_dot}


def lacks_field(name: str) -> bool:
    """Whether a name has no field because it has no dot, not because it is hidden or metadata."""
    base = name.rpartition("/")[2]
    return bool(base) and "." not in base and not _METADATA.match(name)


def _parts(name: str, base: int, dot: int) -> tuple[str, str] | None:
    if dot <= base or (name[0] == "_" and _METADATA.match(name)):
        return None
    if not name.isascii():
        return _storable(name[:dot]), _storable(name[dot + 1 :].lower())
    return name[:dot], name[dot + 1 :].lower()


def _storable(text: str) -> str:
    """Bytes that are no UTF-8 become ``\\xff`` in letters, so that keys can go into Arrow, JSON and logs."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
