"""Rows that lie side by side are read together; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

RUN_BYTES = 8 << 20


def runs(
    rows: Sequence[int], starts: Sequence[int], stops: Sequence[int], limit: int = RUN_BYTES
) -> Iterator[list[int]]:
    """Cut ascending ``rows`` where the next does not begin at the end of the one before, or ``limit`` is exceeded.

    ``starts`` and ``stops`` say where each row of ``rows`` lies.
    """
    run: list[int] = []
    first = 0
    for index in range(len(rows)):
        if run and (starts[index] != stops[index - 1] or stops[index] - starts[first] > limit):
            yield run
            run = []
        if not run:
            first = index
        run.append(index)
    if run:
        yield run
