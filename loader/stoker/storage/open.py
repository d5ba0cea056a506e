"""The way from a URL to a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from stoker.storage.files import FileStore
from stoker.storage.peek import PeekingStore
from stoker.storage.retry import Retry, RetryingStore, RetryPolicy
from stoker.storage.urls import OBJECT_SCHEMES, WEB_SCHEMES, scheme_of

_NO_OPTIONS: Mapping[str, str] = {}


def open_store(
    url: str,
    options: Mapping[str, str] = _NO_OPTIONS,
    *,
    policy: RetryPolicy | None = None,
    on_retry: Callable[[Retry], None] | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> PeekingStore:
    """A store for every URL of the same scheme as ``url``; cheap, connections are shared per process.

    ``options`` are obstore's configuration and client keys for s3, gs, az and http(s) (see ``options.py``), and
    the file system's own arguments for fsspec schemes. ``sleep`` waits before a retry and may raise to leave.
    """
    policy = policy or RetryPolicy()
    scheme = scheme_of(url)
    if scheme == "file":
        return RetryingStore(FileStore(), policy, sleep=sleep, on_retry=on_retry)
    if scheme in OBJECT_SCHEMES | WEB_SCHEMES:
        from stoker.storage.objects import ObjectStore  # obstore is loaded by those who need it
        from stoker.storage.parallel import ParallelStore

        objects = ObjectStore(scheme, options, policy.attempt_s)
        policy = replace(policy, attempt_s=objects.timeout_s)
        return ParallelStore(RetryingStore(objects, policy, sleep=sleep, on_retry=on_retry))
    from stoker.storage.fsspec_store import FsspecStore

    return RetryingStore(FsspecStore(scheme, options), policy, sleep=sleep, on_retry=on_retry)
