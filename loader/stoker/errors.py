"""Every error that Stoker raises.

A class says who must act and whether a retry can help::

    StokerError
    ├── SpecError (ValueError)             the caller: the pipeline or an argument is wrong
    ├── StateError (ValueError)            the caller: a saved state does not fit what it is loaded into
    ├── ClosedError (RuntimeError)         the caller: the loader was closed
    ├── MissingDependencyError (ImportError)   the caller: an extra is not installed
    ├── DataError                          the owner of the data
    │   ├── ShardError                     a shard cannot be read as what it should be
    │   ├── SampleError                    one sample is bad; the policy ``on_error`` decides
    │   ├── CollateError                   samples of one batch do not fit together
    │   └── TooManyBadSamplesError         more bad samples than ``max_bad`` allows
    ├── StorageError (OSError)             the store answered with an error
    │   ├── NotFoundError                  nothing lies at this URL
    │   ├── AccessError                    credentials or rights
    │   ├── ChangedError                   the object is not the one that was indexed; no retry helps, a new index does
    │   └── TransientError                 a retry may help: throttled, cut, stalled, unreachable
    ├── ServiceError (ConnectionError)     the service, or a worker of it, cannot be reached; a retry may help
    ├── WorkerError (RuntimeError)         a worker process died; the text names it, its signal and its samples
    └── StallError (TimeoutError)          a wait passed its deadline; the text names the cause
        └── WorkerStallError (RuntimeError)    the same for a loader of a torch dataset

    StokerWarning (UserWarning)            something about the data that does not stop the run
"""

from __future__ import annotations

from dataclasses import dataclass


class StokerError(Exception):
    """Root of all errors raised by Stoker."""


class StokerWarning(UserWarning):
    """Something about the data that the user should know and that does not stop the run."""


class SpecError(StokerError, ValueError):
    """A pipeline or an argument is wrong; says what was expected, what was found, what to do."""


class StateError(StokerError, ValueError):
    """A saved state does not fit the loader it is given to; says what differs."""


class ClosedError(StokerError, RuntimeError):
    """The loader was closed before this call."""


class MissingDependencyError(StokerError, ImportError):
    """An optional package is needed; says which extra brings it."""


class DataError(StokerError):
    """The data are not what they should be."""


class ShardError(DataError):
    """A shard cannot be read as what it should be; names URL and offset."""


class CollateError(DataError):
    """Samples of one batch do not fit together; names the field, both shapes, both keys."""


class TooManyBadSamplesError(DataError):
    """More samples were bad than ``max_bad`` allows."""


@dataclass(frozen=True, slots=True)
class SampleOrigin:
    """Where a sample comes from: ``row`` counts from 0 inside the shard at ``url``."""

    url: str
    row: int
    key: str


class SampleError(DataError):
    """One sample is bad: ``reason`` says why, ``op`` which step found it, ``origin`` where it lies."""

    def __init__(self, reason: str, *, op: str | None = None, origin: SampleOrigin | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.op = op
        self.origin = origin

    def __str__(self) -> str:
        key = f" (key {self.origin.key!r})" if self.origin and self.origin.key else ""
        where = f"{self.origin.url} row {self.origin.row}{key}: " if self.origin else ""
        step = f"{self.op}: " if self.op else ""
        return f"{where}{step}{self.reason}"

    def at(self, origin: SampleOrigin) -> SampleError:
        """Return this error with its origin; keeps an origin that is already there."""
        if self.origin is not None:
            return self
        located = SampleError(self.reason, op=self.op, origin=origin)
        located.__cause__ = self.__cause__
        return located


class StorageError(StokerError, OSError):
    """The store answered with an error that a retry will not mend; the text names the URL."""


class NotFoundError(StorageError):
    """Nothing lies at this URL."""


class AccessError(StorageError):
    """The store refused: credentials or rights."""


class ChangedError(StorageError):
    """The object was replaced since it was indexed; the text names both versions."""


class TransientError(StorageError):
    """A retry may help: throttled, cut short, stalled, or unreachable."""


class ServiceError(StokerError, ConnectionError):
    """The service, or a worker of it, cannot be reached, or broke off; names its address. A retry may help."""


class StallError(StokerError, TimeoutError):
    """A wait passed its deadline; the text names the stage that was waited for."""


class WorkerError(StokerError, RuntimeError):
    """A worker process died; names it, how it ended, and the samples it had in hand."""


class DeviceLostError(StokerError, RuntimeError):
    """The GPU's context is broken, so that this process cannot use it any more; another process can."""


class WorkerStallError(StallError, RuntimeError):
    """A worker process did not answer in time; a RuntimeError as well, since torch's loader raises that."""
