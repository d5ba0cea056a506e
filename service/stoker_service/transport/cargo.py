"""By which name a payload is known on both sides."""

from __future__ import annotations

import hashlib


def new_hash() -> hashlib.blake2b:
    """Of all bytes; its hex digits are the name."""
    return hashlib.blake2b(digest_size=16)


def digest_of(content: memoryview) -> str:
    """The name of a payload that is here as a whole."""
    digest = new_hash()
    digest.update(content)
    return digest.hexdigest()
