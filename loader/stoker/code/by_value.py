"""Pickles that carry the user's own code with them."""

from __future__ import annotations

import io
import pickle
import sys
import sysconfig
import threading
from collections import ChainMap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

import cloudpickle

_OURS: Final = frozenset(["stoker", "stoker_service", "stoker_proto", "stoker_bench"])
_PACKAGES: Final = frozenset(["site-packages", "dist-packages"])
_PLUMBING: Final = frozenset(["__builtins__", "__cached__", "__loader__", "__spec__"])
_MAINS: Final = frozenset(["__main__", "__mp_main__"])
_NO_FILE: Final = "<dynamic-code>"
_lock = threading.RLock()  # cloudpickle's register of modules is one for the process


def dumps(value: Any) -> bytes:
    """Pickle by value what the user wrote: functions, classes and modules that no package brings.

    What is installed (the standard library, site-packages, Stoker) goes by name. Raises whatever a part raises that
    cannot be pickled.
    """
    with users_modules_by_value():
        return dumps_registered(value)


def dumps_registered(value: Any) -> bytes:
    """Like :func:`dumps`, inside :func:`users_modules_by_value`."""
    written = io.BytesIO()
    Pickler(written, ships_modules=True).dump(value)
    return written.getvalue()


@contextmanager
def users_modules_by_value() -> Iterator[None]:
    """Register the user's modules with cloudpickle, one thread at a time; what the user has registered stays so."""
    with _lock:
        yield from _registered()


def _registered() -> Iterator[None]:
    before = cloudpickle.list_registry_pickle_by_value()
    found = [module for module in list(sys.modules.values()) if is_users(module)]
    names = sys.modules.keys() - before
    added = {module.__name__: module for module in found if module.__name__ in names}  # a module may have two names
    for module in added.values():
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added.values():
            cloudpickle.unregister_pickle_by_value(module)


def is_users(module: object) -> bool:
    """Whether a module is source of the user's own: neither installed, nor of Python, nor of Stoker."""
    if not isinstance(module, ModuleType) or module.__name__.partition(".")[0] in _OURS:
        return False
    file = module.__dict__.get("__file__")  # not by getattr: some modules import others when asked
    if isinstance(file, str):
        return file.endswith(".py") and not _is_installed(Path(file).parent)
    folders = module.__dict__.get("__path__")  # a namespace package has no file
    return folders is not None and bool(list(folders)) and not any(_is_installed(Path(folder)) for folder in folders)


@lru_cache(maxsize=4096)
def _is_installed(folder: Path) -> bool:
    real = folder.resolve()
    return not _PACKAGES.isdisjoint(real.parts) or any(real.is_relative_to(root) for root in _roots())


@lru_cache(maxsize=1)
def _roots() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    return tuple(Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def _reduce_file(file: io.TextIOWrapper) -> Any:
    if file is sys.stdout or file is sys.stderr:
        return cloudpickle.Pickler.dispatch_table[io.TextIOWrapper](file)
    raise TypeError(f"cannot pickle the open file {file.name!r}")


def _reduce_code(code: CodeType) -> Any:
    """With the file's name, which cloudpickle leaves out, so that a worker's traces show the user's lines."""
    make, parts = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return make, tuple(code.co_filename if part == _NO_FILE else part for part in parts)


def _reduce_cached(function: Any) -> Any:
    """What ``functools.lru_cache`` made goes by name, unless its module is one that goes by value."""
    if function.__module__ not in _MAINS and function.__module__ not in cloudpickle.list_registry_pickle_by_value():
        return function.__reduce__()
    return make_cached, (function.__wrapped__, function.cache_parameters())


def make_cached(function: Any, parameters: dict[str, Any]) -> Any:
    """A function with an empty cache of its own."""
    return lru_cache(**parameters)(function)


def _reduce_module(module: ModuleType) -> Any:
    if not is_users(module):
        return cloudpickle.Pickler.dispatch_table[ModuleType](module)
    content = {name: part for name, part in vars(module).items() if name not in _PLUMBING}
    return make_module, (module.__name__,), content, None, None, fill_module


def make_module(name: str) -> ModuleType:
    """Make the module that :func:`fill_module` fills; by name in what is sent, so it stays where it is."""
    return ModuleType(name)


def fill_module(module: ModuleType, content: dict[str, Any]) -> None:
    """Put in what stood in the user's module; after it was made, so that modules may refer to one another in rings."""
    vars(module).update(content)


# cloudpickle would read a text file to its end and send that, and cannot send modules that form a ring
_BY_NAME: Final = ChainMap(
    {io.TextIOWrapper: _reduce_file, CodeType: _reduce_code, type(lru_cache(len)): _reduce_cached},
    cloudpickle.Pickler.dispatch_table,
)
_BY_VALUE: Final = ChainMap({ModuleType: _reduce_module}, _BY_NAME)


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle carries no types
    """Pickles by value what no other process could import: what ``__main__`` and functions define.

    ``ships_modules``: also the user's modules that are imported; inside :func:`users_modules_by_value`.
    """

    def __init__(
        self,
        file: Any,
        *,
        ships_modules: bool,
        buffer_callback: Callable[[pickle.PickleBuffer], object] | None = None,
    ) -> None:
        self.dispatch_table = _BY_VALUE if ships_modules else _BY_NAME
        if (script := sys.modules.get("__mp_main__")) is not None:  # in a process that multiprocessing has spawned
            cloudpickle.register_pickle_by_value(script)
        super().__init__(file, protocol=5, buffer_callback=buffer_callback)
