"""A list whose items are made when they are read, from columns that processes share."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import repeat
from typing import Any, Final, NoReturn, SupportsIndex

from stoker.processes.columns import Flat

_READ_ROWS: Final = 256


class WrittenList(list[Any]):
    """What a :class:`SharedList` becomes when it is first changed: all items are there, as in any list.

    Pickles and copies of both are plain lists.
    """

    __slots__ = ("_flat",)
    _flat: Flat

    def __reduce_ex__(self, _protocol: SupportsIndex) -> Any:
        return list, (), None, iter(self)


class SharedList(WrittenList):
    """Behaves as the list it was made from.

    Each read makes its item anew, so that ``x[0] is x[0]`` does not hold. C code that reads a list's memory without
    asking the list finds :class:`_Unread` there, which fails at any use, instead of no items or wrong ones; the
    folder's README says which functions do.
    """

    __slots__ = ()

    def __init__(self, flat: Flat) -> None:
        super().__init__(repeat(_UNREAD, flat.length))
        self._flat = flat

    def _own(self) -> None:
        """Become an ordinary list. ``_flat`` stays, for a thread that is just reading."""
        if type(self) is SharedList:
            list.__setitem__(self, slice(None), list(self))
            self.__class__ = WrittenList  # type: ignore[assignment]  # the layout is the same

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return self._flat.read(start, stop)
            return [self._flat.item(i) for i in range(start, stop, step)]
        list.__getitem__(self, index)  # raises what a list raises
        place = operator.index(index)
        return self._flat.item(place if place >= 0 else place + len(self))

    def __iter__(self) -> Iterator[Any]:
        place = 0
        while type(self) is SharedList and place < self._flat.length:
            for item in self._flat.read(place, min(place + _READ_ROWS, self._flat.length)):
                if type(self) is not SharedList:  # changed meanwhile
                    break
                yield item
                place += 1
        while type(self) is not SharedList and place < len(self):
            yield list.__getitem__(self, place)
            place += 1

    def __reversed__(self) -> Iterator[Any]:
        for place in range(len(self) - 1, -1, -1):
            if place < len(self):
                yield self[place]

    def __contains__(self, value: object) -> bool:
        return any(item == value for item in self)

    def count(self, value: Any) -> int:
        return operator.countOf(iter(self), value)

    def index(self, value: Any, start: SupportsIndex = 0, stop: SupportsIndex = sys.maxsize) -> int:
        places = range(*slice(start, stop).indices(len(self)))
        for place in places:
            if (item := self[place]) is value or item == value:
                return place
        raise ValueError(f"{value!r} is not in list")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list):
            return NotImplemented
        return other is self or (len(self) == len(other) and all(map(operator.eq, self, other)))

    def __ne__(self, other: object) -> bool:
        return NotImplemented if (equal := self.__eq__(other)) is NotImplemented else not equal

    def __lt__(self, other: object) -> bool:
        return list(self) < list(other) if isinstance(other, list) else NotImplemented

    def __le__(self, other: object) -> bool:
        return list(self) <= list(other) if isinstance(other, list) else NotImplemented

    def __gt__(self, other: object) -> bool:
        return list(self) > list(other) if isinstance(other, list) else NotImplemented

    def __ge__(self, other: object) -> bool:
        return list(self) >= list(other) if isinstance(other, list) else NotImplemented

    def __add__(self, other: Any) -> Any:
        return [*self, *other] if isinstance(other, list) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return [*other, *self] if isinstance(other, list) else NotImplemented

    def __mul__(self, times: SupportsIndex) -> list[Any]:
        return list(self) * times

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return repr(list(self))

    def copy(self) -> list[Any]:
        return list(self)

    __copy__ = copy

    def __deepcopy__(self, _memo: Any) -> list[Any]:
        return list(self)  # the items cannot be changed

    def __arrow_array__(self, type: Any = None) -> Any:  # noqa: A002  # pyarrow's protocol
        """pyarrow reads a list's memory; so it is given a plain one."""
        import pyarrow as pa

        return pa.array(list(self), type=type)


def _writing(name: str) -> Callable[..., Any]:
    native = getattr(list, name)

    @wraps(native)
    def method(self: SharedList, *args: Any, **named: Any) -> Any:
        self._own()
        return native(self, *args, **named)

    return method


for _name in (
    *("__setitem__", "__delitem__", "__iadd__", "__imul__", "append", "extend", "insert"),
    *("pop", "remove", "clear", "sort", "reverse"),
):
    setattr(SharedList, _name, _writing(_name))


class _Unread:
    """Stands in the memory of a list whose items lie elsewhere."""

    __slots__ = ()

    def _fail(self, *_: object) -> NoReturn:
        raise TypeError(
            "this function reads the memory of a list without asking it for its items, which lie in memory that "
            "processes share: give it list(x)"
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __bool__ = __iter__ = __len__ = _fail
    __index__ = __int__ = __float__ = __str__ = __getitem__ = __call__ = __contains__ = __reduce_ex__ = _fail


_UNREAD: Final = _Unread()
