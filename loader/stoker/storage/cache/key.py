"""The name under which the bytes of a range are kept."""

from __future__ import annotations

import hashlib
import re
import struct
from urllib.parse import unquote_plus

from stoker.storage.store import ObjectRange
from stoker.storage.urls import WEB_SCHEMES, scheme_of

DIGEST_BYTES = 32

# Parameters that sign a web address (S3, GCS, CloudFront, Azure), and so differ each time. The others may say which
# object is meant, and a version that is only a time would not tell those apart.
_SIGNS = re.compile(
    r"(x-amz-(algorithm|credential|date|expires|security-token|signature|signedheaders)"
    r"|x-goog-(algorithm|credential|date|expires|signature|signedheaders)"
    r"|awsaccesskeyid|googleaccessid|signature|expires|policy|key-pair-id"
    r"|sig|se|sp|sv|st|spr|sip|skoid|sktid|skt|ske|sks|skv)",
    re.IGNORECASE,
)


def digest_of(wanted: ObjectRange) -> bytes:
    """The same for every process; nothing of the URL can be read from it."""
    fields = (wanted.endpoint, _unsigned(wanted.url), wanted.version)
    digest = hashlib.blake2b(struct.pack("<qq", wanted.start, wanted.stop), digest_size=DIGEST_BYTES)
    for field in fields:
        encoded = field.encode("utf-8", "surrogateescape")
        digest.update(struct.pack("<q", len(encoded)))
        digest.update(encoded)
    return digest.digest()


def _unsigned(url: str) -> str:
    if scheme_of(url) not in WEB_SCHEMES:
        return url
    address, _, query = url.partition("?")
    kept = [part for part in query.split("&") if not _SIGNS.fullmatch(unquote_plus(part.partition("=")[0]))]
    return f"{address}?{'&'.join(kept)}"
