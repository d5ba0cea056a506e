"""What a new worker process is told about the program that it runs."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import stoker


@dataclass(frozen=True, slots=True)
class Request:
    """``program`` is ``"package.module:function"``; the rest is the trainer's at launch.

    ``is_fresh``: in an interpreter of its own, not a fork of the nursery.
    """

    program: str
    name: str
    is_fresh: bool
    environment: dict[bytes, bytes]
    path: list[str]
    argv: list[str]

    @classmethod
    def here(cls, program: str, name: str, *, is_fresh: bool) -> Self:
        """A request from this process."""
        argv = getattr(sys, "argv", [""])  # an embedded interpreter has none
        return cls(program, name, is_fresh, dict(os.environb), import_path(), list(argv))

    @property
    def module(self) -> str:
        """The module of the program."""
        return self.program.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Preload:
    """The nursery is to import these modules, if it can, for all its children."""

    modules: tuple[str, ...]


def import_path() -> list[str]:
    """This process's ``sys.path``; Stoker's own place is added, should an import hook have found it elsewhere."""
    entries: list[object] = [*sys.path]
    path = [entry for entry in entries if isinstance(entry, str)]  # others are ignored by imports too
    home = str(Path(stoker.__file__).resolve().parents[1])
    return path if home in path else [*path, home]
