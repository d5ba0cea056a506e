"""Which part of a function keeps it from being sent."""

from __future__ import annotations

import dis
import functools
import io
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from types import CodeType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any, TypeAlias

from stoker.code.by_value import dumps_registered, is_users, users_modules_by_value

Part: TypeAlias = tuple[str, Any]
"""How a part is reached from the whole, for people; the part."""

_PLUMBING = frozenset(["__builtins__", "__dict__", "__weakref__", "__module__", "__doc__", "__qualname__", "__spec__"])
_BUDGET_S = 0.5
_MAX_DEPTH = 20


@dataclass(frozen=True, slots=True)
class Blame:
    """The innermost part that cannot be pickled: how it is reached, what it is, why not, what to do."""

    path: str
    type_name: str
    reason: str
    remedy: str


def blame(function: Any) -> Blame | None:
    """Take a user's function apart; None if it can be sent. Ends within about half a second with what it has found."""
    until_s = time.monotonic() + _BUDGET_S
    with users_modules_by_value():
        reason = _why_not(function)
        if reason is None:
            return None
        path, value = "", function
        seen = {id(value)}
        while len(seen) < _MAX_DEPTH:
            found = _first_bad(value, seen, until_s)
            if found is None:
                break
            step, value, reason = found
            path += step
            seen.add(id(value))
    return Blame(path, _type_name(value), reason, _remedy(value))


def _first_bad(value: Any, seen: set[int], until_s: float) -> tuple[str, Any, str] | None:
    for step, part in _parts(value):
        if time.monotonic() > until_s:
            return None
        if id(part) not in seen and (reason := _why_not(part)) is not None:
            return step, part, reason
    return None


def _why_not(value: Any) -> str | None:
    try:
        dumps_registered(value)
    except Exception as error:  # noqa: BLE001  # a user's __reduce__ and __getstate__ may raise anything
        text = str(error).strip()
        return text.splitlines()[0] if text else type(error).__name__
    return None


def _parts(value: Any) -> Iterator[Part]:
    match value:
        case FunctionType() | functools.partial() | MethodType() | staticmethod() | classmethod() | property():
            return _parts_of_callable(value)
        case Mapping():
            return ((f"[{key!r}]", part) for key, part in value.items())
        case list() | tuple() | set() | frozenset():
            return ((f"[{i}]", part) for i, part in enumerate(value))
        case ModuleType():
            return iter(_named(value) if is_users(value) else ())
        case type():
            return chain(_named(value), ((f".base {base.__name__}", base) for base in value.__bases__))
    return chain(_attributes(value), [(f".class {type(value).__qualname__}", type(value))])


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
    yield from ((f".{name}", part) for name, part in getattr(value, "__dict__", {}).items())
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield f".{name}", getattr(value, name)


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
