"""Which part of a function or object keeps it from being sent."""

from __future__ import annotations

import dis
import functools
import io
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from pickle import PickleBuffer
from types import CodeType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any, Final, TypeAlias

import numpy as np

from stoker.code.by_value import Pickler, is_users, users_modules_by_value

Part: TypeAlias = tuple[str, Any]
"""How a part is reached from the whole, for people; the part."""

Trial: TypeAlias = Callable[[Any, float], None]
"""Pickles a value to nowhere; raises what its parts raise, and :class:`OutOfTimeError` when the thread has used the
processor until the time given (``time.thread_time``)."""

_PLUMBING = frozenset(["__builtins__", "__dict__", "__weakref__", "__module__", "__doc__", "__qualname__", "__spec__"])
_BUDGET_S: Final = 0.5
_TRIAL_S: Final = 0.05
_MAX_DEPTH: Final = 20
_SINGLE_PARTS: Final = 64
_GROUP_PARTS: Final = 1024


class OutOfTimeError(Exception):
    """A trial was given up: it says nothing about the value."""


@dataclass(frozen=True, slots=True)
class Blame:
    """The innermost part that cannot be pickled: how it is reached, what it is, why not, what to do."""

    path: str
    type_name: str
    reason: str
    remedy: str


def blame(value: Any) -> Blame | None:
    """Take a user's function apart; None if it can be sent. Ends after half a second of work with what it has found."""
    with users_modules_by_value():
        search = _Search(_plain_trial, time.thread_time() + _BUDGET_S, ships_modules=True)
        try:
            reason = search.why_not(value, time.thread_time() + _BUDGET_S)
        except OutOfTimeError:
            reason = "too large to find out why"
        return None if reason is None else search.innermost(value, reason)


def blame_for(error: Exception, value: Any, trial: Trial, *, ships_modules: bool) -> Blame:
    """Take apart what ``trial`` would raise ``error`` for; in the same time, however large the good parts are.

    ``ships_modules``: as in :class:`stoker.code.by_value.Pickler`.
    """
    with users_modules_by_value() if ships_modules else nullcontext():
        return _Search(trial, time.thread_time() + _BUDGET_S, ships_modules).innermost(value, _text_of(error))


class Nowhere:
    """A file that forgets what is written. Raises OutOfTimeError after ``until_s`` of the thread's own time."""

    def __init__(self, until_s: float) -> None:
        self._until_s = until_s

    def write(self, _written: object) -> None:
        self.check()

    def check(self) -> None:
        """Raise OutOfTimeError if it is time."""
        if time.thread_time() > self._until_s:
            raise OutOfTimeError


def _plain_trial(value: Any, until_s: float) -> None:
    Pickler(Nowhere(until_s), ships_modules=True, buffer_callback=_forget).dump(value)


def _forget(_buffer: PickleBuffer) -> None:
    """Leave large arrays out."""


class _Search:
    def __init__(self, trial: Trial, until_s: float, ships_modules: bool) -> None:
        self._trial = trial
        self._until_s = until_s
        self._ships_modules = ships_modules

    def innermost(self, value: Any, reason: str) -> Blame:
        path = ""
        seen = {id(value)}
        while len(seen) < _MAX_DEPTH:
            found = self._first_bad(value, seen, reason)
            if found is None:
                break
            step, value, reason = found
            path += step
            seen.add(id(value))
        return Blame(path, _type_name(value), reason, _remedy(value))

    def why_not(self, value: Any, until_s: float) -> str | None:
        try:
            self._trial(value, until_s)
        except OutOfTimeError:
            raise
        except Exception as error:  # noqa: BLE001  # a user's __reduce__ and __getstate__ may raise anything
            return _text_of(error)
        return None

    def _first_bad(self, value: Any, seen: set[int], reason: str) -> tuple[str, Any, str] | None:
        large: list[Part] = []
        parts = (part for part in _parts(value, self._ships_modules) if id(part[1]) not in seen)
        for group in _groups(parts):
            if time.thread_time() > self._until_s:
                return None
            try:
                if len(group) > 1 and self.why_not([part for _, part in group], self._until_s) is None:
                    continue
            except OutOfTimeError:
                return None
            for step, part in group:
                try:
                    found = self.why_not(part, min(self._until_s, time.thread_time() + _TRIAL_S))
                except OutOfTimeError:
                    large.append((step, part))
                    continue
                if found is not None:
                    return step, part, found
        return self._first_bad_of_large(large, reason)

    def _first_bad_of_large(self, large: list[Part], reason: str) -> tuple[str, Any, str] | None:
        """All other parts are good; so if there is one only, it is that."""
        while len(large) > 1:
            step, part = large.pop(0)
            now_s = time.thread_time()
            try:
                found = self.why_not(part, now_s + (self._until_s - now_s) / (len(large) + 1))
            except OutOfTimeError:
                return None
            if found is not None:
                return step, part, found
        return (*large[0], reason) if large else None


def _text_of(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _groups(parts: Iterator[Part]) -> Iterator[list[Part]]:
    """The first few one by one, the others many at a time."""
    yield from ([part] for part in islice(parts, _SINGLE_PARTS))
    while group := list(islice(parts, _GROUP_PARTS)):
        yield group


def _parts(value: Any, ships_modules: bool) -> Iterator[Part]:
    match value:
        case FunctionType() | functools.partial() | MethodType() | staticmethod() | classmethod() | property():
            return _parts_of_callable(value)
        case Mapping():
            return _parts_of_mapping(value)
        case list() | tuple() | set() | frozenset() | np.ndarray():
            return chain(_parts_of_sequence(value), _attributes(value))
        case ModuleType():
            return iter(_named(value) if ships_modules and is_users(value) else ())
        case type():
            return chain(_named(value), ((f".base {base.__name__}", base) for base in value.__bases__))
    return chain(_attributes(value), [(f".class {type(value).__qualname__}", type(value))])


def _parts_of_sequence(value: Any) -> Iterator[Part]:
    if isinstance(value, np.ndarray):
        value = value.flat if value.dtype.hasobject else ()
    return ((f"[{i}]", part) for i, part in enumerate(value))


def _parts_of_mapping(value: Mapping[Any, Any]) -> Iterator[Part]:
    for key, part in value.items():
        yield f"[{key!r}]", part
        yield f".key {key!r}", key
    yield from _attributes(value)


def _parts_of_callable(value: Any) -> Iterator[Part]:
    match value:
        case functools.partial():
            yield " of partial", value.func
            yield from ((f".argument {i}", argument) for i, argument in enumerate(value.args))
            yield from ((f".argument {name!r}", argument) for name, argument in value.keywords.items())
        case MethodType():
            yield ".self", value.__self__
            yield ".function", value.__func__
        case property():
            yield from (("", function) for function in (value.fget, value.fset, value.fdel) if function is not None)
        case staticmethod() | classmethod():
            yield "", value.__func__
        case _:
            yield from _parts_of_function(value)


def _named(value: Any) -> Iterator[Part]:
    """What stands in a module or class."""
    return ((f".{name}", part) for name, part in vars(value).items() if name not in _PLUMBING)


def _parts_of_function(function: FunctionType) -> Iterator[Part]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f".closure {name!r}", cell.cell_contents
        except ValueError:
            continue  # not assigned yet
    for name in sorted(_global_names(function.__code__)):
        if name in function.__globals__:
            yield f".global {name!r}", function.__globals__[name]
    yield from ((f".default {i}", default) for i, default in enumerate(function.__defaults__ or ()))
    yield from ((f".default {name!r}", default) for name, default in (function.__kwdefaults__ or {}).items())
    yield from ((f".{name}", part) for name, part in vars(function).items())


def _global_names(code: CodeType) -> set[str]:
    found = {step.argval for step in dis.get_instructions(code) if step.opname.endswith("_GLOBAL")}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _global_names(constant)
    return found


def _attributes(value: Any) -> Iterator[Part]:
    """What is pickled of an object: its state where it makes one, otherwise what stands in it."""
    state = _state(value)
    if state is not None:
        yield from ((f".{name}", part) for name, part in state.items())
        return
    yield from ((f".{name}", part) for name, part in getattr(value, "__dict__", {}).items())
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield f".{name}", getattr(value, name)


def _state(value: Any) -> dict[str, Any] | None:
    get_state = getattr(value, "__getstate__", None)
    if get_state is None or getattr(type(value), "__getstate__", None) is object.__getstate__:
        return None
    try:
        state = get_state()
    except Exception:  # noqa: BLE001  # a user's
        return None
    return state if isinstance(state, dict) and all(isinstance(name, str) for name in state) else None


def _type_name(value: Any) -> str:
    found = type(value)
    return found.__qualname__ if found.__module__ == "builtins" else f"{found.__module__}.{found.__qualname__}"


def _remedy(value: Any) -> str:
    if isinstance(value, io.IOBase):
        return "open it inside the function, at its first call, from a path that workers can reach"
    if isinstance(value, GeneratorType):
        return "give a list, or make the generator inside the function"
    return (
        "make it inside the function, at its first call, or leave it out of what is pickled (__getstate__); "
        "code that is installed where the workers run is not sent at all"
    )
