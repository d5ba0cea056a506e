"""Users' functions by name, and what tells two of them apart."""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, ClassVar, Self

import numpy as np

from stoker.errors import SpecError
from stoker.ops.op import Op

Function = Callable[..., Any]


class FunctionOp(Op):
    """An op that carries a user's function of a sample.

    The function is called as ``fn(sample)``, or ``fn(sample, rng=…)`` if it has a parameter ``rng``: a NumPy Generator
    keyed by seed, epoch, sample and op. Without one, the global generators of ``random``, ``numpy`` and, if it is
    imported, ``torch`` are seeded from the same key for the call and put back after it: such calls run one at a time,
    at about 100 µs each, and other threads that draw meanwhile see the seeded generators. ``rng`` costs 20 µs.
    ``seed_globals=False`` says that the function draws nothing from them: it then runs in parallel.
    """

    is_code: ClassVar[bool] = True
    fn: Function
    seed_globals: bool

    @property
    def takes_rng(self) -> bool:
        """Whether the function wants a generator of its own."""
        try:
            parameters = inspect.signature(self.fn).parameters
        except (TypeError, ValueError):  # some functions written in C do not tell
            return False
        return "rng" in parameters and parameters["rng"].kind is not inspect.Parameter.POSITIONAL_ONLY

    @property
    def num_uniforms(self) -> int:
        """Two, which are the key of the function's generators."""
        return 2 if self.takes_rng or self.seed_globals else 0

    @property
    def label(self) -> str:
        return f"{type(self).__name__}({describe(self.fn)})"

    def to_json(self) -> dict[str, Any]:
        """As for every op; the function by name. Raises SpecError if it cannot be imported by its name."""
        return super().to_json() | {"fn": name_of(self.fn)}

    def identity(self) -> dict[str, Any]:
        """As for every op; the function by its name and a digest of its code."""
        return super().to_json() | {"fn": [describe(self.fn), digest(self.fn)]}

    @classmethod
    def from_json(cls, arguments: dict[str, Any], *, allow_code: bool) -> Self:
        """Make the op from what :meth:`to_json` gave, importing its function if ``allow_code`` permits it."""
        name = arguments["fn"]
        if not allow_code:
            raise SpecError(
                f"the pipeline holds the function {name!r}; importing it runs code, so this needs allow_code=True, "
                "which is safe for pipelines that come from people you trust"
            )
        return cls(**{**arguments, "fn": resolve(name)})


def describe(fn: Function) -> str:
    """The name of a function, for messages."""
    if isinstance(fn, functools.partial):
        return f"partial of {describe(fn.func)}"
    found = fn if hasattr(fn, "__qualname__") and hasattr(fn, "__module__") else type(fn)
    return f"{found.__module__}:{found.__qualname__}"


def name_of(fn: Function) -> str:
    """Return ``module:qualname``. Raises SpecError if that does not lead back to ``fn``, in other processes as well."""
    name = describe(fn)
    what_to_do = (
        "so it has no name that another process can import; define it at the top level of a module, "
        "or keep the pipeline in this process"
    )
    if not hasattr(fn, "__qualname__"):
        raise SpecError(f"{name} is an object, not a function, {what_to_do}")
    if "<lambda>" in fn.__qualname__:
        raise SpecError(f"{name} is a lambda, {what_to_do}")
    if "<locals>" in fn.__qualname__:
        raise SpecError(f"{name} is defined inside another function, {what_to_do}")
    if fn.__module__ == "__main__":
        raise SpecError(f"{name} is defined in the script that runs, {what_to_do}")
    if resolve(name) != fn:
        raise SpecError(f"{name} is another object than the one given (decorated or assigned anew), {what_to_do}")
    return name


def resolve(name: str) -> Function:
    """Import the function called ``module:qualname``. Raises SpecError."""
    module, colon, qualname = name.partition(":")
    if not colon or not qualname:
        raise SpecError(f"a function is named 'module:qualname', found {name!r}")
    try:
        found: Any = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise SpecError(f"cannot import the function {name!r}: {error}") from error
    if not callable(found):
        raise SpecError(f"{name!r} is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]  # callable() does not tell mypy


def digest(fn: Function) -> str:
    """Return 32 hex digits that change with the function's code, its defaults and what it closes over.

    The same in every process of one Python version. It does not follow what the function calls, and of values that
    are neither plain, arrays nor functions it knows the type only.
    """
    return hashlib.blake2b(repr(_Canonical().of(fn)).encode(), digest_size=16).hexdigest()


class _Canonical:
    """Turns values into ones whose repr is equal, in all processes, for equal values."""

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}  # the values too, so that no id is used again

    def of(self, value: Any) -> Any:
        if value is None or value is ... or isinstance(value, (bool, int, float, complex, str, bytes)):
            return repr(value)
        if isinstance(value, (tuple, frozenset, CodeType, type, ModuleType)):
            return self._of_constant(value)
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return "array", value.dtype.str, value.shape, hashlib.sha256(value.tobytes()).hexdigest()
        if id(value) in self._seen:
            return "again", type(value).__name__
        self._seen[id(value)] = value
        return self._of_container(value)

    def _of_constant(self, value: Any) -> Any:
        match value:
            case tuple():
                return "tuple", [self.of(item) for item in value]
            case frozenset():
                return "set", sorted(repr(self.of(item)) for item in value)
            case CodeType():
                signature = value.co_names, value.co_varnames, value.co_freevars, value.co_flags
                return "code", value.co_code.hex(), self.of(value.co_consts), signature
            case type():
                return "class", f"{value.__module__}:{value.__qualname__}"
        return "module", value.__name__

    def _of_container(self, value: Any) -> Any:
        match value:
            case list():
                return "list", [self.of(item) for item in value]
            case set():
                return "set", sorted(repr(self.of(item)) for item in value)
            case Mapping():
                return "mapping", sorted((repr(self.of(key)), repr(self.of(item))) for key, item in value.items())
        return self._of_function(value)

    def _of_function(self, value: Any) -> Any:
        match value:
            case FunctionType():
                cells = tuple(_content(cell) for cell in value.__closure__ or ())
                parts = (value.__code__, value.__defaults__, value.__kwdefaults__, cells)
                return describe(value), self.of(parts)
            case functools.partial():
                return "partial", self.of((value.func, value.args, value.keywords))
            case MethodType():
                return "method", self.of((value.__func__, value.__self__))
        call = inspect.getattr_static(type(value), "__call__", None)
        if isinstance(call, FunctionType):
            return describe(value), self.of((call, getattr(value, "__dict__", None)))
        return describe(value), self.of(getattr(value, "__wrapped__", None))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None
