"""Keys by way of AWS's own library: profiles and roles, which obstore does not know."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stoker.errors import AccessError, MissingDependencyError, StorageError, TransientError
from stoker.storage.credentials import THREAD, Keys
from stoker.storage.identity import Identity

_DEFAULT_REGION = "us-east-1"
_TALKATIVE = ("botocore.auth", "botocore.endpoint", "botocore.hooks", "botocore.parsers")
_PASSING_STATUS = 500


def fetcher(identity: Identity) -> Callable[[], Keys]:
    """What fetches the keys of an identity anew, each time from the start: files may have changed."""
    _need_botocore()
    for name in _TALKATIVE:
        logging.getLogger(name).addFilter(_is_not_ours)

    def fetch() -> Keys:
        with _translated(identity):
            return _role_keys(identity) if identity.role_arn else _profile_keys(identity)

    return fetch


def whose(identity: Identity) -> str:
    """The identity, for texts."""
    role = f"role {identity.role_arn}" if identity.role_arn else ""
    profile = f"profile {identity.profile!r}" if identity.profile else ""
    return " by ".join(part for part in (role, profile) if part)


def profile_settings(identity: Identity) -> dict[str, str]:
    """Region and endpoint that the profile names, as obstore's options."""
    _need_botocore()
    with _translated(identity):
        session = _session(identity)
        found = {
            "region": session.get_config_variable("region"),
            "endpoint": session.get_scoped_config().get("endpoint_url"),
        }
    return {name: value for name, value in found.items() if value}


def _need_botocore() -> None:
    if importlib.util.find_spec("botocore") is None:
        raise MissingDependencyError(
            "storage_options: profile and role_arn need AWS's library, not installed: pip install 'stoker[aws]'"
        )


def _is_not_ours(record: logging.LogRecord) -> bool:
    """At the level DEBUG botocore logs whole requests and answers, that is, tokens and keys."""
    return not (record.threadName or "").startswith(THREAD)


def _session(identity: Identity) -> Any:
    import botocore.session

    session = botocore.session.Session(profile=identity.profile or None)
    if identity.access_key_id:
        session.set_credentials(identity.access_key_id, identity.secret_access_key, identity.session_token or None)
    return session


def _profile_keys(identity: Identity) -> Keys:
    credentials = _session(identity).get_credentials()
    if credentials is None:
        raise AccessError(f"{whose(identity)} names none; see ~/.aws/config and ~/.aws/credentials")
    frozen = credentials.get_frozen_credentials()
    # botocore tells nobody when they end; without it they are looked at once a minute
    expires = getattr(credentials, "_expiry_time", None)
    return Keys(frozen.access_key, frozen.secret_key, frozen.token, expires.timestamp() if expires else math.inf)


def _role_keys(identity: Identity) -> Keys:
    import botocore
    from botocore.config import Config

    session = _session(identity)
    timing = {"connect_timeout": 5, "read_timeout": 10, "retries": {"total_max_attempts": 2, "mode": "standard"}}
    unsigned = {"signature_version": botocore.UNSIGNED} if identity.web_identity_token_file else {}
    client = session.create_client(
        "sts",
        region_name=identity.region or session.get_config_variable("region") or _DEFAULT_REGION,
        endpoint_url=identity.sts_endpoint or None,
        config=Config(**timing, **unsigned),
    )
    asked = {"RoleArn": identity.role_arn, "RoleSessionName": identity.role_session_name}
    with contextlib.closing(client):
        if identity.web_identity_token_file:
            token = Path(identity.web_identity_token_file).read_text(encoding="utf-8").strip()
            answer = client.assume_role_with_web_identity(**asked, WebIdentityToken=token)
        else:
            external = {"ExternalId": identity.external_id} if identity.external_id else {}
            answer = client.assume_role(**asked, **external)
    got = answer["Credentials"]
    return Keys(got["AccessKeyId"], got["SecretAccessKey"], got["SessionToken"], got["Expiration"].timestamp())


@contextlib.contextmanager
def _translated(identity: Identity) -> Iterator[None]:
    """botocore's errors as ours, by code alone: answers repeat what was sent."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, ProfileNotFound

    try:
        yield
    except StorageError:
        raise
    except ClientError as error:
        answer = error.response
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        kind = TransientError if status >= _PASSING_STATUS else AccessError
        code = answer.get("Error", {}).get("Code", "")
        raise kind(f"AWS answered HTTP {status} {code} when asked for {whose(identity)}") from None
    except ProfileNotFound:
        raise AccessError(f"no profile {identity.profile!r} in ~/.aws/config and ~/.aws/credentials") from None
    except NoCredentialsError:
        raise AccessError(
            f"nothing vouches for {whose(identity)}: expected a profile, keys, web_identity_token_file, or what AWS's "
            "default chain looks for"
        ) from None
    except BotoCoreError as error:
        raise TransientError(f"AWS cannot be asked for {whose(identity)} ({type(error).__name__})") from None
    except OSError as error:
        raise AccessError(f"{error.filename} cannot be read: {error.strerror}") from None
