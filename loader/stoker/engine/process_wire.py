"""What a trainer and the worker processes of a pipeline say to each other."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from stoker.backends.options import AUTO_BACKEND, Backend
from stoker.engine.engine import Limits
from stoker.engine.killers import Killer
from stoker.engine.prepared_stats import PreparedCounts
from stoker.plan.resume import Position
from stoker.processes.channel import Channel, Message
from stoker.processes.failures import error_of, failure_of
from stoker.processes.lent import LentMemory
from stoker.processes.objects import Encoder, decode
from stoker.ranks import Rank
from stoker.storage.cache import CacheOptions, CacheStats
from stoker.storage.meter import StorageStats
from stoker.supply import Delivery


@dataclass(frozen=True, slots=True)
class Setup:
    """The first message to a worker; the pipeline comes with it, as the descriptor of a payload."""

    worker_index: int
    num_workers: int
    rank: Rank
    limits: Limits
    arena_bytes: int
    idle_bytes: int
    cache: CacheOptions | None
    backend: Backend = AUTO_BACKEND


@dataclass(frozen=True, slots=True)
class Begin:
    """Make your share of the batches from ``position`` on, without its first ``num_skipped``; give up all else.

    The first ``num_allowed`` of them may be made, the first ``num_careful`` with care, since a worker that died had
    them in hand; the chunks of later ones may be read. ``returned`` are places in the worker's arena that the trainer
    needs no longer, ``killers`` samples that end the worker which makes them, of which it was not told yet.
    """

    run: int
    position: Position
    num_skipped: int
    num_allowed: int
    num_careful: int = 0
    returned: tuple[int, ...] = ()
    killers: tuple[Killer, ...] = ()


@dataclass(frozen=True, slots=True)
class Allow:
    """So many batches since :class:`Begin` may be made in all."""

    num_allowed: int
    returned: tuple[int, ...] = ()
    killers: tuple[Killer, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """What does your next batch wait for?"""


Order: TypeAlias = Setup | Begin | Allow | Ask


@dataclass(frozen=True, slots=True)
class Counts:
    """What a worker has done since it started, and the part of :class:`stoker.engine.stats.Counters` it adds to."""

    reads: int = 0
    bytes_read: int = 0
    read_s: float = 0.0
    decode_s: float = 0.0
    assemble_s: float = 0.0
    storage: StorageStats = field(default_factory=StorageStats)
    cache: CacheStats = field(default_factory=CacheStats)
    prepared: PreparedCounts = field(default_factory=PreparedCounts)

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


@dataclass(frozen=True, slots=True)
class Ready:
    """The data are open; what they are. The arena's descriptor comes with it, if there is one."""

    fingerprint: str


@dataclass(frozen=True, slots=True)
class Made:
    """The next batch of the worker's share; ``ready_s`` is when its chunks were there, on the machine's clock.

    ``killers`` are those of its samples that end their process, and are among the bad ones.
    """

    run: int
    delivery: Delivery
    ready_s: float
    counts: Counts
    killers: tuple[Killer, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The next batch cannot be made; the run ends. Without a run: the worker cannot work, and ends."""

    run: int | None
    error: BaseException


@dataclass(frozen=True, slots=True)
class Answer:
    """The stage that the next batch is in, and a text that says more."""

    stage: str
    text: str


Report: TypeAlias = Ready | Made | Failed | Answer

_PLAIN = b"P"
_BATCH = b"B"


def send_order(channel: Channel, order: Order, fds: tuple[int, ...] = ()) -> None:
    """Trainer to worker."""
    channel.send([pickle.dumps(order)], fds)


def order_of(message: Message) -> Order:
    """What :func:`send_order` sent."""
    found: Order = pickle.loads(message.body)
    return found


def send_report(channel: Channel, report: Report, encoder: Encoder | None = None, fds: tuple[int, ...] = ()) -> None:
    """Worker to trainer; the memory of a batch is held by the encoder until the trainer has returned it."""
    match report:
        case Made():
            assert encoder is not None, "batches come after the arena"
            channel.send([_BATCH, *encoder.encode(report)], fds)
        case Failed():
            channel.send([_PLAIN, pickle.dumps((report.run, failure_of(report.error, "in a worker process")))], fds)
        case _:
            channel.send([_PLAIN, pickle.dumps(report)], fds)


def report_of(message: Message, memory: LentMemory | None) -> Report:
    """What :func:`send_report` sent; the batch lies in ``memory``."""
    body = message.body[1:]
    found: Any = decode(body, memory) if message.body[:1] == _BATCH else pickle.loads(body)
    if isinstance(found, tuple):
        run, failure = found
        return Failed(run, error_of(failure))
    report: Report = found
    return report
