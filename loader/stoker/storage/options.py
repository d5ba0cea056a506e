"""``storage_options`` as obstore wants them.

Keys are obstore's own, in any case: those of its store (``endpoint``, ``region``, ``access_key_id``,
``skip_signature``, ``service_account_key``, …) and of its HTTP client (``allow_http``, ``proxy_url``,
``connect_timeout``, …), and the names fsspec users know (``anon``, ``endpoint_url``, ``key``, ``secret``). What is
not given comes from the environment, as obstore reads it (``AWS_…``, ``GOOGLE_…``, ``AZURE_…``).

Stoker's own keys never reach obstore: ``chaos`` and ``checksum`` for all, and for S3 those that say whose credentials
are meant (``profile``, ``role_arn``, …; see ``credentials.py``).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from stoker.errors import SpecError
from stoker.storage.aws import profile_settings
from stoker.storage.identity import IDENTITY_KEYS, STATIC_KEYS, Identity
from stoker.storage.own_options import OWN_KEYS, split_own

_CLIENT_KEYS = frozenset(
    [
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "default_headers",
        "http1_only",
        "http2_keep_alive_interval",
        "http2_keep_alive_timeout",
        "http2_keep_alive_while_idle",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "randomize_addresses",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    ]
)
_ALIASES = {
    "anon": "skip_signature",
    "anonymous": "skip_signature",
    "endpoint_url": "endpoint",
}
_S3_ALIASES = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "key": "access_key_id",
    "requester_pays": "request_payer",
    "secret": "secret_access_key",
    "token": "session_token",
}

# obstore says itself which keys it takes; these names serve for suggestions only
_SUGGESTED = {
    "s3": [
        "access_key_id",
        "secret_access_key",
        "session_token",
        "region",
        "default_region",
        "endpoint",
        "skip_signature",
        "request_payer",
        "virtual_hosted_style_request",
        "unsigned_payload",
        "checksum_algorithm",
        "sse_kms_key_id",
        "s3_express",
        *IDENTITY_KEYS,
    ],
    "gs": [
        "service_account",
        "service_account_key",
        "application_credentials",
        "base_url",
        "bearer_token",
        "skip_signature",
    ],
    "az": [
        "account_name",
        "account_key",
        "client_id",
        "client_secret",
        "tenant_id",
        "sas_key",
        "token",
        "use_emulator",
        "endpoint",
        "skip_signature",
        "use_azure_cli",
        "federated_token_file",
    ],
    "http": [],
}
_UNITS_S = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "m": 60.0, "min": 60.0, "minutes": 60.0, "": 1.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*")


@dataclass(frozen=True, slots=True)
class ObstoreOptions:
    """``config`` for the store, ``client`` for its HTTP client; ``timeout_s`` bounds one request.

    ``identity`` says whose credentials are to be fetched; None: obstore finds them itself.
    """

    config: Mapping[str, Any] = field(repr=False)  # holds secrets
    client: Mapping[str, Any] = field(repr=False)
    timeout_s: float
    identity: Identity | None = None


def obstore_options(family: str, options: Mapping[str, Any], timeout_s: float) -> ObstoreOptions:
    """Sort the keys; ``family`` is s3, gs, az or http. ``timeout_s`` holds where the options name none."""
    _, options = split_own(options)
    config: dict[str, Any] = {}
    client: dict[str, Any] = {}
    aliases = _ALIASES | _S3_ALIASES if family == "s3" else _ALIASES
    for name, value in options.items():
        key = aliases.get(name.lower(), name.lower())
        if key == "timeout":
            timeout_s = _seconds(name, value)
        elif key in _CLIENT_KEYS:
            client[key] = value
        elif family == "http" or (family != "s3" and key in IDENTITY_KEYS):
            raise SpecError(unknown_key(family, name))
        else:
            config[key] = value
    identity = _identity(config) if family == "s3" else None
    if identity is not None and identity.profile:
        config = {**profile_settings(identity), **config}
    for key in ("endpoint", "base_url"):
        if key in config:
            _check_endpoint(key, str(config[key]))
    if str(config.get("endpoint", "")).startswith("http://"):
        client.setdefault("allow_http", True)  # written out by the user
    if family == "http":
        client.setdefault("allow_http", True)
    client["timeout"] = timedelta(seconds=timeout_s)
    client.setdefault("connect_timeout", timedelta(seconds=min(5.0, timeout_s)))
    return ObstoreOptions(config, client, timeout_s, identity)


def _identity(config: dict[str, Any]) -> Identity | None:
    """Take out of ``config`` what says whose credentials are meant, with the keys that vouch for it."""
    found = {key: str(config.pop(key)) for key in IDENTITY_KEYS if key in config}
    if not found:
        return None
    found |= {key: str(config.pop(key)) for key in STATIC_KEYS if key in config}
    if "sts_endpoint" in config:
        found["sts_endpoint"] = str(config.pop("sts_endpoint"))
    return Identity(**found, region=str(config.get("region", config.get("default_region", ""))))


def _check_endpoint(key: str, value: str) -> None:
    """obstore ends the process's thread with a panic over an address that is none."""
    found = urlsplit(value)
    if found.scheme not in ("http", "https") or not found.hostname:
        raise SpecError(f"storage_options: {key} should be http(s)://host[:port], found {value!r}")


def unknown_key(family: str, name: str) -> str:
    """The text for a key that nobody knows, with the nearest known one."""
    aliases = {} if family == "http" else _ALIASES | (_S3_ALIASES if family == "s3" else {})
    known = sorted({*_CLIENT_KEYS, *OWN_KEYS, *_SUGGESTED[family], *aliases})
    close = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
    return f"storage_options: {family} has no option {name!r}; {hint}"


def hide_values(text: str, options: Mapping[str, Any]) -> str:
    """Blot out every value of the options that occurs in a text."""
    for value in sorted((str(value) for value in options.values()), key=len, reverse=True):
        if len(value) > 4:  # short ones are flags and numbers
            text = text.replace(value, "…")
    return text


def _seconds(name: str, value: object) -> float:
    match = _DURATION.fullmatch(str(value).lower())
    if not match or match.group(2) not in _UNITS_S:
        raise SpecError(f"storage_options: {name} should be a duration such as '30s' or '500ms', found {value!r}")
    return float(match.group(1)) * _UNITS_S[match.group(2)]
