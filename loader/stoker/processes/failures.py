"""Exceptions of user code, sent from one process to another."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass
from types import MethodDescriptorType
from typing import Any, Final

import cloudpickle

_MAX_TRACE_CHARS: Final = 20_000
_MAX_PART_BYTES: Final = 4 << 20
_MAX_CAUSES: Final = 8
_ABSENT: Final = object()
_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement


@dataclass(frozen=True, slots=True)
class _Record:
    """An exception in pieces, each pickled for itself so that one that cannot be loaded does not spoil the others.

    ``whole`` is there for classes that say themselves how they are pickled. The others are made again from ``args``
    without calling their ``__init__``, which may want other arguments than ``args``, or change them once more.
    """

    type_name: str
    text: str
    whole: bytes | None
    type: bytes | None
    args: tuple[bytes | None, ...]
    texts: tuple[str, ...]
    attributes: dict[str, bytes]
    cause: _Record | None


def failure_of(error: BaseException, where: str = "") -> bytes:
    """An exception as bytes, with its trace in this process; ``where`` says whose trace that is."""
    trace = _shortened(_trace_of(error), _MAX_TRACE_CHARS)
    return pickle.dumps((_record_of(error, _MAX_CAUSES), f"{where}:\n{trace}" if where else trace))


def error_of(data: bytes | memoryview) -> BaseException:
    """The exception again: its type, args, attributes and cause, as far as they can be sent; the trace as a note.

    A RuntimeError that names the type stands in for one that cannot be made here.
    """
    record, note = pickle.loads(data)
    error = _made(record)
    add_note(error, note)
    return error


def add_note(error: BaseException, text: str) -> None:
    """Add a note, unless the class does not let its instances be changed."""
    try:
        error.add_note(text)
    except Exception:  # noqa: BLE001  # a user's __setattr__ may raise anything; the error itself matters more
        return


def _record_of(error: BaseException, max_causes: int) -> _Record:
    cause = error.__cause__
    args, attributes = _pieces(error)
    return _Record(
        type_name=f"{type(error).__module__}.{type(error).__qualname__}",
        text=_text_of(error),
        whole=_whole(error) if _has_own_pickling(type(error)) else None,
        type=_dumped(type(error)),
        args=tuple(_dumped(argument) for argument in args),
        texts=tuple(_text_of(argument) for argument in args),
        attributes={name: dumped for name, value in attributes.items() if (dumped := _dumped(value)) is not None},
        cause=_record_of(cause, max_causes - 1) if cause is not None and max_causes > 0 else None,
    )


def _pieces(error: BaseException) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that its built-in class wants, and its attributes, also those in slots."""
    is_standard = isinstance(type(error).__reduce__, MethodDescriptorType)
    # OSError and ImportError keep more than their args
    reduced: Any = error.__reduce__() if is_standard else BaseException.__reduce__(error)
    _, args, *rest = reduced
    attributes: dict[str, Any] = dict(rest[0]) if rest and rest[0] else {}
    state: Any = object.__getstate__(error)
    if isinstance(state, tuple):
        attributes |= state[1]
    return args, attributes


def _has_own_pickling(kind: type[BaseException]) -> bool:
    return (
        not isinstance(kind.__reduce__, MethodDescriptorType)
        or kind.__reduce_ex__ is not BaseException.__reduce_ex__
        or kind.__getstate__ is not BaseException.__getstate__
    )


def _whole(error: BaseException) -> bytes | None:
    dumped = _dumped(error)
    try:
        is_same = dumped is not None and type(pickle.loads(dumped)) is type(error)
    except Exception:  # noqa: BLE001  # a user's __init__ may raise anything
        return None
    return dumped if is_same else None


def _dumped(value: Any) -> bytes | None:
    try:
        dumped: bytes = cloudpickle.dumps(value)
    except Exception:  # noqa: BLE001  # a user's __reduce__ may raise anything
        return None
    return dumped if len(dumped) <= _MAX_PART_BYTES else None


def _made(record: _Record) -> BaseException:
    error = _rebuilt(record)
    if error is None:
        error = RuntimeError(f"{record.type_name}: {record.text}")
    if record.cause is not None:
        error.__cause__ = _made(record.cause)
    return error


def _rebuilt(record: _Record) -> BaseException | None:
    try:
        error = pickle.loads(record.whole) if record.whole is not None else _from_pieces(record)
    except Exception:  # noqa: BLE001  # a module may be missing here, a user's __setstate__ may raise anything
        return None
    return error if isinstance(error, BaseException) else None


def _from_pieces(record: _Record) -> BaseException | None:
    if record.type is None:
        return None
    kind = pickle.loads(record.type)
    args = [_loaded(dumped, text) for dumped, text in zip(record.args, record.texts, strict=True)]
    error = _without_own_init(kind, args)
    for name, dumped in record.attributes.items():
        value = _loaded(dumped, _ABSENT)
        if value is not _ABSENT:
            object.__setattr__(error, name, value)
    return error


def _without_own_init(kind: type[BaseException], args: list[Any]) -> BaseException:
    """Make an exception by what its built-in class does, without the code of the classes made from that."""
    builtin: Any = next(each for each in kind.__mro__ if not each.__flags__ & _HEAP_TYPE)
    error: BaseException = builtin.__new__(kind, *args)
    builtin.__init__(error, *args)
    return error


def _loaded(dumped: bytes | None, otherwise: Any) -> Any:
    if dumped is None:
        return otherwise
    try:
        return pickle.loads(dumped)
    except Exception:  # noqa: BLE001  # a module may be missing here
        return otherwise


def _trace_of(error: BaseException) -> str:
    told = traceback.TracebackException.from_exception(error)
    told.__notes__ = None  # they travel with the error
    return "".join(told.format())


def _text_of(value: object) -> str:
    try:
        text = value if isinstance(value, str) else str(value) if isinstance(value, BaseException) else repr(value)
    except Exception:  # noqa: BLE001  # a user's __str__ may raise anything
        text = f"<{type(value).__name__}>"
    return _shortened(text, _MAX_TRACE_CHARS)


def _shortened(text: str, max_chars: int) -> str:
    """Keep the beginning and, more of it, the end, where a trace names what happened."""
    if len(text) <= max_chars:
        return text
    head, tail = max_chars // 4, max_chars - max_chars // 4
    return f"{text[:head]}\n… {len(text) - max_chars} characters …\n{text[-tail:]}"
