"""The storage options that Stoker reads itself, for every kind of store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stoker.errors import SpecError

OWN_KEYS = frozenset({"chaos", "checksum"})


@dataclass(frozen=True, slots=True)
class OwnOptions:
    """``chaos`` is a profile of faults, empty for none; ``checks_bodies`` is whether checksums are compared."""

    chaos: str
    checks_bodies: bool


def split_own(options: Mapping[str, Any]) -> tuple[OwnOptions, dict[str, Any]]:
    """Stoker's own options, and the others as they are. Raises SpecError."""
    own = {name.lower(): value for name, value in options.items() if name.lower() in OWN_KEYS}
    others = {name: value for name, value in options.items() if name.lower() not in OWN_KEYS}
    checksum = own.get("checksum", "auto")
    if checksum not in ("auto", "off"):
        raise SpecError(f"storage_options: checksum should be 'auto' or 'off', found {checksum!r}")
    return OwnOptions(str(own.get("chaos", "")), checksum == "auto"), others
