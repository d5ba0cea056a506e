"""The state with what it has not itself: a lock, a clock, a log, and a way to call workers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar, assert_never

from stoker_service.dispatcher.events import Action, End, Event, Notice, Probe, WorkerProbed
from stoker_service.dispatcher.model import Settings, WorkerId
from stoker_service.dispatcher.probe import Prober
from stoker_service.dispatcher.state import State

Answer = TypeVar("Answer")

_LOG = logging.getLogger("stoker.dispatcher")
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING}


class Shell:
    """Any thread may call. The lock is held for the state alone, never while a worker is called or a line is logged."""

    def __init__(self, settings: Settings, prober: Prober, on_end: Callable[[int], None]) -> None:
        self._lock = threading.Lock()
        self._state = State(settings, time.monotonic())
        self._prober = prober
        self._on_end = on_end

    def ask(self, query: Callable[[State], Answer]) -> Answer:
        """Answer a question that changes nothing."""
        with self._lock:
            return query(self._state)

    def tell(self, event: Event, query: Callable[[State], Answer]) -> Answer:
        """Apply an event, do what it asks for, and answer the question as of then.

        If a worker has to be called for that, this waits for its answer.
        """
        actions, answer = self._apply(event, query)
        probes = self._carry_out(actions)
        if not probes:
            return answer
        for probe in probes:
            self._prober.probe(probe, partial(self._probed, probe.worker_id))
        return self.ask(query)

    def check_and_tell(self, check: Callable[[State], None], event: Event, query: Callable[[State], Answer]) -> Answer:
        """The same after a check, which raises to refuse the event; nothing comes between the two."""
        actions, answer = self._apply(event, query, check)
        self._carry_out(actions)
        return answer

    def now(self, query: Callable[[State, float], Answer]) -> Answer:
        """Answer a question that needs the time."""
        with self._lock:
            return query(self._state, time.monotonic())

    def _apply(
        self, event: Event, query: Callable[[State], Answer], check: Callable[[State], None] | None = None
    ) -> tuple[list[Action], Answer]:
        with self._lock:  # the time is read inside, so that it never goes back from one event to the next
            if check is not None:
                check(self._state)
            actions = self._state.apply(event, time.monotonic())
            return actions, query(self._state)

    def _probed(self, worker_id: WorkerId, is_alive: bool) -> None:
        self.tell(WorkerProbed(worker_id, is_alive), lambda _: None)

    def _carry_out(self, actions: list[Action]) -> list[Probe]:
        """Do all but the calls to workers, which are returned."""
        probes = []
        for action in actions:
            match action:
                case Probe():
                    probes.append(action)
                case Notice():
                    _LOG.log(_LEVELS[action.level], "%s", action.text)
                case End():
                    self._on_end(action.code)
                case _:
                    assert_never(action)
        return probes
