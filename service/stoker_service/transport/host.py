"""Which processes can share memory."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path


def host_id() -> str:
    """Return 16 hex digits that are equal for processes that can share memory, and differ for others.

    They run under one boot of one kernel, see the same abstract sockets (network namespace), and are the same user. In
    containers of one pod the digits agree; in containers with networks of their own they do not. Virtual machines
    restored from one snapshot may agree without sharing anything: the arena's socket is then not found.
    """
    return hashlib.blake2b(
        "\n".join([_boot(), _namespace("net"), _namespace("user"), _user()]).encode(), digest_size=8
    ).hexdigest()


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()


def _namespace(kind: str) -> str:
    try:
        found = Path(f"/proc/self/ns/{kind}").stat()
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}"


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else ""
