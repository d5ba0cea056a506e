"""Credentials that are renewed before they expire.

They stay in this process: they cannot be pickled, and no text shows them.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

from stoker.errors import AccessError, StorageError, TransientError
from stoker.storage.daemon_pool import DaemonPool
from stoker.storage.identity import Identity

FETCH_S: Final = 30.0
"""How long a read waits for credentials, where there are none that hold."""

LOOK_AGAIN_S: Final = 60.0
"""Between two looks at keys without an end: other programs put new ones into a profile. Also the longest back-off."""

FIRST_BACK_OFF_S: Final = 0.1

JUST_RENEWED_S: Final = 1.0
"""A refusal so soon after a renewal may have been meant for the old ones; obstore holds them for 0.1 s."""

THREAD: Final = "stoker-credentials"

_SYSTEM_RANDOM = random.SystemRandom()  # not the user's generator, and different after a fork
_LOG: Final = logging.getLogger("stoker")


@dataclass(frozen=True, slots=True)
class Keys:
    """What requests are signed with; ``expires_s`` is of the system's clock, infinite if unknown."""

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)
    expires_s: float = math.inf


def renew_after(validity_s: float, uniform: float) -> float:
    """Seconds after which to renew: half to four fifths of the validity, so that a fleet does not do so at once."""
    return LOOK_AGAIN_S * (0.5 + 0.5 * uniform) if validity_s == math.inf else validity_s * (0.5 + 0.3 * uniform)


def back_off(num_failures: int, uniform: float) -> float:
    """Seconds to wait after the ``num_failures``-th failure in a row."""
    return min(LOOK_AGAIN_S, FIRST_BACK_OFF_S * 2.0 ** (num_failures - 1)) * (0.5 + 0.5 * uniform)


class Credentials:
    """Of one identity; safe for many threads. An instance is what obstore takes as ``credential_provider``.

    A request that finds a renewal due begins it in a thread beside and goes on with the old ones, which serve until
    they expire. ``fetch`` raises StorageError, whose text may be shown.
    """

    def __init__(
        self,
        whose: str,
        fetch: Callable[[], Keys],
        *,
        clock: Callable[[], float] = time.time,
        uniform: Callable[[], float] = _SYSTEM_RANDOM.random,
    ) -> None:
        self._whose = whose
        self._fetch = fetch
        self._clock = clock
        self._uniform = uniform
        self._lock = threading.Lock()
        self._threads = DaemonPool(1, THREAD)
        self._keys: Keys | None = None
        self._renewed_s = -math.inf
        self._forced_s = -math.inf
        self._due_s = -math.inf
        self._running: Future[None] | None = None
        self._num_failures = 0
        self._cause = "they were not asked for yet"
        self.num_renewed = 0
        """Times that they were fetched, the first one included."""

    def __repr__(self) -> str:
        return f"Credentials({self._whose})"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"credentials stay in their process: expected no one to pickle those of {self._whose}")

    def __call__(self) -> dict[str, Any]:
        """What obstore asks for, from memory."""
        self.ensure()
        with self._lock:
            keys = self._keys
            assert keys is not None, "ensure() has brought them"
            # obstore keeps what it is given until shortly before its end: a short one makes it ask for newer ones.
            expires_s = min(keys.expires_s, self._clock() + LOOK_AGAIN_S)
        return {
            "access_key_id": keys.access_key_id,
            "secret_access_key": keys.secret_access_key,
            "token": keys.token,
            "expires_at": datetime.fromtimestamp(expires_s, UTC),
        }

    def ensure(self) -> None:
        """Return when there are credentials that hold; at once if there are.

        Raises AccessError if there have never been any, else TransientError; both name the cause.
        """
        with self._lock:
            running = self._renew_if_due()
            if self._hold():
                return
        if running is not None:
            wait([running], FETCH_S)
        with self._lock:
            if self._hold():
                return
            is_slow = running is not None and not running.done()
            cause = f"no answer within {FETCH_S:g} s" if is_slow else self._cause
            if self._keys is None:
                raise AccessError(f"no credentials of {self._whose}: {cause}")
            raise TransientError(f"credentials could not be renewed: {cause}")

    def refused(self) -> bool:
        """The store has refused a request: whether another try with newer credentials may help; they are fetched then.

        A store may end them early, or its clock differ from ours. Once in a minute: it may also be right.
        """
        with self._lock:
            now_s = self._clock()
            if self.num_renewed > 1 and now_s - self._renewed_s < JUST_RENEWED_S:
                return True
            if now_s - self._forced_s < LOOK_AGAIN_S:
                return False
            self._forced_s = now_s
            self._due_s = -math.inf
            running = self._renew_if_due()
        if running is not None:
            wait([running], FETCH_S)
        with self._lock:
            return self._renewed_s >= now_s

    def _hold(self) -> bool:
        return self._keys is not None and self._clock() < self._keys.expires_s

    def _renew_if_due(self) -> Future[None] | None:
        """The renewal that is under way, begun here if it is time for it."""
        if self._running is None and self._clock() >= self._due_s:
            self._running = self._threads.submit(self._renew)
        return self._running

    def _renew(self) -> None:
        try:
            keys = self._fetch()
        except StorageError as error:
            self._failed(str(error))
        except BaseException as error:
            self._failed(f"an error of Stoker's own, {type(error).__name__}")
            raise
        else:
            with self._lock:
                now_s = self._clock()
                self._keys, self._renewed_s, self._num_failures = keys, now_s, 0
                validity_s = max(FIRST_BACK_OFF_S, keys.expires_s - now_s)
                self._due_s = now_s + renew_after(validity_s, self._uniform())
                self._cause = "those that came have expired, by this machine's clock; is it right?"
                self._running = None
                self.num_renewed += 1

    def _failed(self, cause: str) -> None:
        with self._lock:
            self._cause = cause
            self._num_failures += 1
            self._due_s = self._clock() + back_off(self._num_failures, self._uniform())
            self._running = None
            left_s = self._keys.expires_s - self._clock() if self._keys is not None else -math.inf
        if left_s > 0:
            _LOG.warning("credentials of %s could not be renewed: %s; the old ones hold", self._whose, cause)


_shared: dict[Identity, Credentials] = {}
_shared_lock = threading.Lock()


def credentials_of(identity: Identity) -> Credentials:
    """Those of an identity, the same for all stores of this process. Raises MissingDependencyError without botocore."""
    from stoker.storage.aws import fetcher, whose

    with _shared_lock:
        found = _shared.get(identity)
        if found is None:
            found = _shared[identity] = Credentials(whose(identity), fetcher(identity))
        return found
