"""Classes and functions of the user's script in the pickles of results.

What the script (``__main__``) defines came to the worker by value. A result takes it back to a trainer that has the
original: it must find that, and leave it as it is. cloudpickle alone would find the class by the number it gave it, and
then set every attribute of it anew, with each message.
"""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any, Final
from weakref import WeakKeyDictionary

import cloudpickle
from cloudpickle import cloudpickle as inside

_reduced: Final[WeakKeyDictionary[Any, Any]] = WeakKeyDictionary()


def reduce_class(cls: type, pickler: cloudpickle.Pickler) -> Any:
    """Reduce a class to its name, or to the number by which the trainer knows it and, if it does not, all of it."""
    try:
        return _reduced[cls]
    except KeyError:
        pass
    reduced: Any
    if _is_in_own_script(cls):
        reduced = cls.__qualname__
    else:
        reduced = cloudpickle.Pickler.reducer_override(pickler, cls)
        number = inside._DYNAMIC_CLASS_TRACKER_BY_CLASS.get(cls)
        if reduced is not NotImplemented and number is not None:
            reduced = find_class, (number, cloudpickle.dumps(cls, protocol=5))
    _reduced[cls] = reduced
    return reduced


def find_class(number: str, whole: bytes) -> Any:
    """Return the class of this process that has the number; make it if there is none."""
    found = inside._DYNAMIC_CLASS_TRACKER_BY_ID.get(number)
    return cloudpickle.loads(whole) if found is None else found


def reduce_function(function: FunctionType, pickler: cloudpickle.Pickler) -> Any:
    """Reduce a function to its name or, if it came by value, to where the trainer has it and all of it."""
    if function in _reduced:
        return NotImplemented
    if _is_in_own_script(function):
        return function.__qualname__
    reduced = cloudpickle.Pickler.reducer_override(pickler, function)
    if reduced is NotImplemented:
        _reduced[function] = NotImplemented
    elif function.__closure__ is None and "<" not in function.__qualname__:
        whole = cloudpickle.dumps(function, protocol=5)
        return find_function, (function.__module__, function.__qualname__, whole)
    return reduced


def find_function(module: str, name: str, whole: bytes) -> Any:
    """Return the function of this process that has this name and the same code; make it if there is none."""
    made = cloudpickle.loads(whole)
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    is_same = isinstance(found, FunctionType) and found.__code__ == made.__code__ and found.__closure__ is None
    return found if is_same else made


def _is_in_own_script(value: Any) -> bool:
    """Whether it is where its name says in this process's ``__main__``: a forked worker's is the trainer's."""
    if getattr(value, "__module__", None) != "__main__":
        return False
    found: Any = sys.modules.get("__main__")
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is value
