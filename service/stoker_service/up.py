"""A whole service on this machine: one dispatcher, its workers, and who looks after them."""

from __future__ import annotations

import logging
import selectors
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from stoker_service import addresses, lifecycle
from stoker_service.arguments import as_arguments
from stoker_service.children import Backoff, Child
from stoker_service.lifecycle import Signals
from stoker_service.options import UpOptions
from stoker_service.status import seconds

START_S = 60.0  # until a child says that it is ready
LEAST_DELAY_S = 0.5  # after the system has refused a process

# After SIGTERM, counted from it: all is over within 5 s, whatever the workers' drain_s. Between the two a child has the
# time that lifecycle.py gives it to stop and to leave.
DRAIN_UNTIL_S = 1.0
KILL_AFTER_S = 4.0
# After Ctrl-C, or the second SIGTERM.
KILL_AT_ONCE_AFTER_S = 3.0

_LOG = logging.getLogger("stoker.up")


@dataclass(slots=True)
class _Place:
    """A place in the service: who fills it now, or when it is to be filled."""

    name: str
    child: Child | None = None
    started_s: float = 0.0
    due_s: float | None = None
    lines: list[str] = field(default_factory=list)
    backoff: Backoff = field(default_factory=Backoff)
    was_ready: bool = False


class Supervisor:
    """Starts the processes of a service, starts again those that die, and ends with all of them.

    Runs in the main thread, which is the only one: it waits for signals, the children's ends and their output.
    """

    def __init__(self, options: UpOptions, say: Callable[[str], None]) -> None:
        self._options = options
        self._say = say
        self._dispatcher = _Place("dispatcher")
        self._workers = [_Place(f"worker-{index}") for index in range(options.num_workers)]
        self._selector = selectors.DefaultSelector()
        self._is_announced = False
        self._code: int | None = None  # once it is ending
        self._is_hasty = False
        self._late_s = self._kill_s = 0.0  # when it is ending: until when workers may drain, and children live
        self._told: set[tuple[str, signal.Signals]] = set()

    def run(self) -> int:
        """Run until the service has ended; return the exit code."""
        with Signals(signal.SIGCHLD) as signals, self._selector:
            self._selector.register(signals, selectors.EVENT_READ)
            self._dispatcher.due_s = 0.0
            try:
                while self._code is None or any(place.child for place in self._places()):
                    self._step(signals)
            finally:
                for place in self._places():
                    if place.child is not None:
                        place.child.send(signal.SIGKILL)
        return self._code

    def _places(self) -> list[_Place]:
        return [self._dispatcher, *self._workers]

    def _step(self, signals: Signals) -> None:
        now_s = time.monotonic()
        self._start_due(now_s)
        for key, _ in self._selector.select(self._timeout_s(now_s)):
            if isinstance(key.data, _Place) and key.data.child is not None:
                self._read(key.data, key.data.child)
        for word in signals.take():
            if word in {signal.SIGTERM, signal.SIGINT}:
                self._end_on_signal(word)
        for place in self._places():
            if place.child is not None:
                self._look_after(place, place.child)
        self._announce()
        if self._code is not None:
            self._end_more()

    # -- starting -----------------------------------------------------------------------------------------------------

    def _start_due(self, now_s: float) -> None:
        if self._code is not None:
            return
        for place in self._places():
            if place.due_s is not None and place.due_s <= now_s:
                self._start(place, now_s)

    def _start(self, place: _Place, now_s: float) -> None:
        place.due_s, place.started_s = None, now_s
        place.lines.clear()
        try:
            place.child = Child(self._arguments(place))
        except OSError as error:  # no memory or no process to be had at the moment
            place.backoff = place.backoff.after(0.0)
            place.due_s = now_s + max(place.backoff.delay_s, LEAST_DELAY_S)
            _LOG.warning("%s cannot be started: %s; again in %s", place.name, error, seconds(place.due_s - now_s))
        else:
            self._selector.register(place.child, selectors.EVENT_READ, place)

    def _arguments(self, place: _Place) -> list[str]:
        if place is self._dispatcher:
            return ["dispatcher", *as_arguments(self._options.for_dispatcher())]
        index = self._workers.index(place)
        address = addresses.Address(self._options.host, self._options.port)
        return ["worker", *as_arguments(self._options.for_worker(index, address))]

    def _read(self, place: _Place, child: Child) -> None:
        lines = child.lines()
        if child.is_silent:
            self._selector.unregister(child)
        for line in lines:
            if len(place.lines) < self._num_first_lines:
                place.lines.append(line)
                self._note(place)
            else:
                _LOG.info("%s: %s", place.name, line)

    @property
    def _num_first_lines(self) -> int:
        return 1 if self._options.http_port is None else 2

    def _note(self, place: _Place) -> None:
        """Take note of a first line of a child."""
        if len(place.lines) < self._num_first_lines:
            return
        _LOG.info("%s: pid %d, %s", place.name, place.child.pid if place.child else 0, ", ".join(place.lines))
        if place is self._dispatcher and not place.was_ready:
            # Once it is known, the port stays: those who have the address find the next dispatcher there.
            port = addresses.parse(place.lines[0].split()[-1]).port
            self._options = replace(self._options, port=port)
            for worker in self._workers:
                worker.due_s = 0.0
        place.was_ready = True

    def _announce(self) -> None:
        if self._is_announced or self._code is not None or not all(place.was_ready for place in self._places()):
            return
        self._is_announced = True
        self._say(f"up {self._options.reached}")
        for line in self._dispatcher.lines[1:]:
            self._say(line)

    # -- looking after ------------------------------------------------------------------------------------------------

    def _look_after(self, place: _Place, child: Child) -> None:
        code = child.poll()
        now_s = time.monotonic()
        if code is None:
            if self._code is None and len(place.lines) < self._num_first_lines and now_s > place.started_s + START_S:
                _LOG.error("%s has not become ready within %s; ending", place.name, seconds(START_S))
                self._end(lifecycle.EXIT_ERROR)
            return
        if not child.is_silent:
            self._read(place, child)
        if not child.is_silent:  # held open by a process that it started
            self._selector.unregister(child)
        child.close()
        place.child = None
        if self._code is None:
            self._replace(place, code, now_s - place.started_s)

    def _replace(self, place: _Place, code: int, lived_s: float) -> None:
        """Decide what follows from the end of a child."""
        if place is self._dispatcher and code in {lifecycle.EXIT_GOOD, lifecycle.EXIT_JOB_LOST}:
            self._end(code)
        elif code == lifecycle.EXIT_GOOD:
            _LOG.info("%s has left, as it was asked to", place.name)
        elif code > 0 and not place.was_ready:
            self._end(code)  # it said itself what is wrong, and would say it again
        else:
            place.backoff = place.backoff.after(lived_s)
            place.due_s = time.monotonic() + place.backoff.delay_s
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            _LOG.warning("%s ended %s; started again in %s", place.name, how, seconds(place.backoff.delay_s))

    # -- ending -------------------------------------------------------------------------------------------------------

    def _end_on_signal(self, number: object) -> None:
        is_second = self._code is not None
        if not is_second:
            self._end(lifecycle.EXIT_INTERRUPTED if number is signal.SIGINT else lifecycle.EXIT_GOOD)
        if number is signal.SIGINT or is_second:
            self._is_hasty = True
            self._late_s = time.monotonic()
            self._kill_s = min(self._kill_s, self._late_s + KILL_AT_ONCE_AFTER_S)

    def _end(self, code: int) -> None:
        now_s = time.monotonic()
        self._code, self._late_s, self._kill_s = code, now_s + DRAIN_UNTIL_S, now_s + KILL_AFTER_S

    def _end_more(self) -> None:
        """Tell the children to end: the workers first, so that they can still tell the dispatcher."""
        now_s = time.monotonic()
        is_late = now_s >= self._late_s
        self._tell(self._workers, signal.SIGINT if is_late else signal.SIGTERM)
        if is_late or not any(worker.child for worker in self._workers):
            self._tell([self._dispatcher], signal.SIGINT if self._is_hasty else signal.SIGTERM)
        if now_s >= self._kill_s:
            self._tell(self._places(), signal.SIGKILL)

    def _tell(self, places: list[_Place], number: signal.Signals) -> None:
        for place in places:
            if place.child is not None and (place.name, number) not in self._told:
                self._told.add((place.name, number))
                place.child.send(number)

    def _timeout_s(self, now_s: float) -> float | None:
        """Until something is to be done that nobody wakes us for."""
        if self._code is not None:
            return min((at_s - now_s for at_s in (self._late_s, self._kill_s) if at_s > now_s), default=None)
        moments = [place.due_s for place in self._places() if place.due_s is not None]
        moments += [
            place.started_s + START_S
            for place in self._places()
            if place.child is not None and len(place.lines) < self._num_first_lines
        ]
        return max(0.0, min(moments) - now_s) if moments else None
