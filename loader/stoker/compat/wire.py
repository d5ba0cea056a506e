"""The messages between a crew and its worker processes.

The first byte of a message is its kind. What a trainer sends is a pickle behind that byte. What a worker sends::

    kind, 1 byte · flags, 1 byte · 2 bytes of nothing · run, 4 · batch_index, 8 · length of the value, 8 · 8 of nothing
    the value: parts of stoker.processes.objects, or stoker.processes.failures
    the state after it, pickled; nothing if none is wanted

All numbers have the low byte first. The value starts at a multiple of 32 bytes, for those who read arrays in place.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeAlias

import cloudpickle

from stoker.compat.crew import Ended, Event, Failed, Job, Made, Task
from stoker.compat.shortened import shortened
from stoker.processes import failures
from stoker.processes.lent import LentMemory
from stoker.processes.objects import decode

if TYPE_CHECKING:  # the service's workers pass messages on without torch
    from stoker.compat.settings import Settings

Parts: TypeAlias = list[bytes | memoryview]

_HEAD: Final = struct.Struct("<BBxxIQQxxxxxxxx")
_ASKED: Final = 1
_PLAIN: Final = frozenset([int, str, float, bool, bytes, type(None)])


class Kind(IntEnum):
    """``BEGIN``, ``TASK``, ``RELEASE`` and ``WITHDRAW`` go to a worker, the others come from it."""

    BEGIN = 1
    TASK = 2
    RELEASE = 3
    HELLO = 4
    MADE = 5
    FAILED = 6
    ENDED = 7
    WITHDRAW = 8


_KINDS: Final = {kind.value: kind for kind in Kind}  # Kind(number) takes a microsecond


@dataclass(frozen=True, slots=True)
class Cargo:
    """What a worker gets by value, as a payload; the names are those that messages about its parts show."""

    dataset: Any
    collate_fn: Callable[[Any], Any]
    worker_init_fn: Callable[[int], None] | None


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin an iteration.

    ``job`` comes without its cargo. A payload of that comes as the message's descriptor if ``has_cargo``; otherwise the
    cargo is the one that came last. A worker that was forked with its cargo never gets one. ``settings`` are those of
    the trainer when the message is made.
    """

    run: int
    worker_index: int
    job: Job
    state: Any = None
    has_cargo: bool = False
    settings: Settings | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """Fetch a batch in iteration ``run``; ``released`` are places in the arena that may be used again."""

    run: int
    task: Task
    released: Sequence[int]


class Answer(NamedTuple):  # made for each batch: a frozen dataclass takes five times as long
    """What became of a task. ``asked``: since it got its dataset the worker's user code has called get_worker_info().

    ``value`` is a batch, or a failure, and empty at the end of the data. ``state`` is a pickle, or empty.
    """

    kind: Kind
    run: int
    batch_index: int
    asked: bool
    value: memoryview
    state: memoryview


def cargo_of(job: Job) -> Cargo:
    """The part of a job that goes by value."""
    return Cargo(job.dataset, job.collate_fn, job.worker_init_fn)


def with_cargo(job: Job, cargo: Cargo) -> Job:
    """A job that came without its cargo, whole again."""
    return replace(job, dataset=cargo.dataset, collate_fn=cargo.collate_fn, worker_init_fn=cargo.worker_init_fn)


def kind_of(body: memoryview) -> Kind:
    """The kind of any message."""
    return _KINDS[body[0]]


def begin_message(begin: Begin) -> Parts:
    """The message of a :class:`Begin`, whose job may have its cargo still."""
    job = replace(begin.job, dataset=None, collate_fn=_left_out, worker_init_fn=None, states=())
    from stoker.compat.settings import Settings

    begin = replace(begin, job=job, state=cloudpickle.dumps(begin.state), settings=Settings.taken())
    return [bytes([Kind.BEGIN]) + pickle.dumps(begin)]


def task_message(run: int, task: Task, released: Sequence[int]) -> Parts:
    """The message of an :class:`Order`."""
    dumps = pickle.dumps if _is_plain(task.keys) else cloudpickle.dumps  # the quick one names classes of __main__
    return [b"\x02" + dumps((run, task.batch_index, task.keys, released))]


def release_message(released: Sequence[int]) -> Parts:
    """Tell a worker, without a task, what may be used again."""
    return [bytes([Kind.RELEASE]) + pickle.dumps(released)]


def withdraw_message(run: int, batch_index: int) -> Parts:
    """Tell a worker that another one makes a batch which it has not begun."""
    return [bytes([Kind.WITHDRAW]) + pickle.dumps((run, batch_index))]


def begin_of(body: memoryview) -> Begin:
    """See :func:`begin_message`. The state is a pickle still: users' code reads it."""
    begin: Begin = pickle.loads(body[1:])
    return begin


def order_of(body: memoryview) -> Order:
    """See :func:`task_message`."""
    run, batch_index, keys, released = pickle.loads(body[1:])
    return Order(run, Task(batch_index, keys), released)


def released_of(body: memoryview) -> Sequence[int]:
    """See :func:`release_message`."""
    released: Sequence[int] = pickle.loads(body[1:])
    return released


def withdrawn_of(body: memoryview) -> tuple[int, int]:
    """See :func:`withdraw_message`."""
    run, batch_index = pickle.loads(body[1:])
    return run, batch_index


def hello_message() -> Parts:
    """The first message of a worker; its descriptor, if it has one, is the arena's."""
    return [bytes([Kind.HELLO])]


def answer_message(kind: Kind, run: int, batch_index: int, value: Parts, *, asked: bool, state: bytes = b"") -> Parts:
    """The message of an :class:`Answer`."""
    num_bytes = sum(part.nbytes if isinstance(part, memoryview) else len(part) for part in value)
    return [_HEAD.pack(kind, _ASKED * asked, run, batch_index, num_bytes), *value, *([state] if state else [])]


def answer_of(body: memoryview) -> Answer:
    """See :func:`answer_message`; the views are of ``body``."""
    kind, flags, run, batch_index, num_bytes = _HEAD.unpack_from(body)
    end = _HEAD.size + num_bytes
    return Answer(_KINDS[kind], run, batch_index, bool(flags & _ASKED), body[_HEAD.size : end], body[end:])


def event_of(answer: Answer, memory: LentMemory | None, worker_index: int, who: str) -> Event:
    """What an answer tells. ``who`` made it, for the text of an error in reading it."""
    match answer.kind:
        case Kind.FAILED:
            return Failed(worker_index, answer.batch_index, failures.error_of(answer.value))
        case Kind.ENDED:
            return Ended(worker_index, answer.batch_index, knows_workers=answer.asked)
    try:
        value = decode(answer.value, memory)
        state = pickle.loads(answer.state) if answer.state else None
    except Exception as error:  # noqa: BLE001  # a user's __setstate__ may raise anything; a module may be missing here
        failures.add_note(error, f"batch {answer.batch_index} of {who} cannot be read in the trainer")
        return Failed(worker_index, answer.batch_index, error)
    return Made(worker_index, answer.batch_index, value, state, knows_workers=answer.asked)


def in_hand_text(in_hand: Mapping[int, Any]) -> str:
    """What a worker has in hand, batch by batch its keys, for messages."""
    if not in_hand:
        return ", with nothing in hand"
    batch_index, keys = next(iter(in_hand.items()))
    is_iterable = keys is None or (isinstance(keys, list) and all(key is None for key in keys))
    samples = "" if is_iterable else f" (samples {shortened(keys)})"
    more = len(in_hand) - 1
    return f", with batch {batch_index}{samples} in hand{f' and {more} more to do' if more else ''}"


def _is_plain(keys: Any) -> bool:
    return type(keys) in _PLAIN or (type(keys) is list and _PLAIN.issuperset(map(type, keys)))


def _left_out(_: Any) -> NoReturn:
    raise AssertionError("the job came without its cargo")
