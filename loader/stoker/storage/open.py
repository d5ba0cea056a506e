"""The way from a URL to a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stoker.storage.files import FileStore
from stoker.storage.flights import FlightStore
from stoker.storage.meter import Meter
from stoker.storage.metered import MeteredStore
from stoker.storage.own_options import split_own
from stoker.storage.peek import PeekingStore
from stoker.storage.retry import Retry, RetryingStore, RetryPolicy
from stoker.storage.urls import OBJECT_SCHEMES, WEB_SCHEMES, scheme_of

if TYPE_CHECKING:
    from stoker.storage.rate import RateLimits

_NO_OPTIONS: Mapping[str, str] = {}


def open_store(
    url: str,
    options: Mapping[str, str] = _NO_OPTIONS,
    *,
    policy: RetryPolicy | None = None,
    on_retry: Callable[[Retry], None] | None = None,
    sleep: Callable[[float], object] = time.sleep,
    meter: Meter | None = None,
    limits: RateLimits | None = None,
) -> PeekingStore:
    """A store for every URL of the same scheme as ``url``; cheap, connections are shared per process.

    ``options`` are obstore's configuration and client keys for s3, gs, az and http(s) (see ``options.py``), and
    the file system's own arguments for fsspec schemes; ``chaos`` and ``checksum`` are Stoker's. ``sleep`` waits
    before a retry and may raise to leave. ``meter`` counts requests; ``limits`` spaces those to object stores.
    """
    scheme = scheme_of(url)
    own, others = split_own(options)
    plan = _Plan(policy or RetryPolicy(), on_retry, sleep, meter, limits)
    if scheme == "file":
        return plan.retrying(plan.metered(FileStore(), own.chaos), has_tail=bool(own.chaos))
    if scheme in OBJECT_SCHEMES | WEB_SCHEMES:
        from stoker.storage.objects import ObjectStore  # obstore is loaded by those who need it
        from stoker.storage.parallel import ParallelStore

        objects = ObjectStore(scheme, options, plan.policy.attempt_s)
        plan = replace(plan, policy=replace(plan.policy, attempt_s=objects.timeout_s))
        parts = ParallelStore(plan.retrying(plan.metered(objects, own.chaos), has_tail=True))
        return FlightStore(parts, plan.policy.deadline_s)
    from stoker.storage.fsspec_store import FsspecStore

    return plan.retrying(plan.metered(FsspecStore(scheme, others), own.chaos), has_tail=bool(own.chaos))


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is wrapped round a store whose calls are single attempts."""

    policy: RetryPolicy
    on_retry: Callable[[Retry], None] | None
    sleep: Callable[[float], object]
    meter: Meter | None
    limits: RateLimits | None

    def metered(self, store: PeekingStore, chaos: str) -> PeekingStore:
        """The store itself, made to misbehave if ``chaos`` says how, and each of its requests counted."""
        if chaos:
            from stoker.storage.chaos.store import chaos_store

            store = chaos_store(store, chaos, sleep=self.sleep, timeout_s=self.policy.attempt_s)
        return store if self.meter is None else MeteredStore(store, self.meter)

    def retrying(self, store: PeekingStore, *, has_tail: bool) -> RetryingStore:
        """Requests in their turn, a second one where the first is slow (``has_tail``), and again where one failed."""
        policy = self.policy
        if self.limits is not None and has_tail:
            from stoker.storage.limited import LimitedStore

            store = LimitedStore(store, self.limits, max_wait_s=policy.attempt_s, sleep=self.sleep)
            policy = replace(policy, attempt_s=2 * policy.attempt_s)  # one for its turn, one for the answer
        if has_tail:
            from stoker.storage.hedged import HedgedStore

            store = HedgedStore(store, deadline_s=policy.attempt_s, meter=self.meter)
        return RetryingStore(store, policy, sleep=self.sleep, on_retry=self._tell_retry)

    def _tell_retry(self, retry: Retry) -> None:
        if self.meter is not None:
            self.meter.retried(resumed=retry.kept_bytes > 0)
        if self.on_retry is not None:
            self.on_retry(retry)
