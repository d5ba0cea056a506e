"""The thread that brings batches to the device."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from stoker.device.copier import Copier, OnDevice
from stoker.device.waits import Waits
from stoker.errors import ClosedError
from stoker.plan.resume import Position
from stoker.supply import Delivery, Supply

_CLOSE_S: Final = 1.8
_SOON_S: Final = 0.3


@dataclass(frozen=True, slots=True)
class Carried:
    """A batch whose copy has begun, what the thread waited for it, and since when it is here."""

    delivery: Delivery
    on_device: OnDevice
    waits: Waits
    ready_s: float


@dataclass(slots=True)
class Ask:
    """One batch that is asked for, or was, if it is not wanted any more; the answer comes once."""

    position: Position
    answer: queue.SimpleQueue[Carried | BaseException] = field(default_factory=queue.SimpleQueue)
    is_dropped: bool = False


class Carrier:
    """Takes batches from a supply and copies them, one for each that is asked for, in a thread of its own.

    It owns the supply's calls: nobody else may call ``next``. :meth:`ask` is safe for a thread that Ctrl-C comes to.
    """

    def __init__(self, supply: Supply, make_copier: Callable[[], Copier]) -> None:
        self.pid = os.getpid()
        self._supply = supply
        self._make_copier = make_copier
        self._asks: queue.SimpleQueue[Ask | None] = queue.SimpleQueue()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="stoker-device", daemon=True)
        self._thread.start()

    def ask(self, position: Position) -> Ask:
        """Have the batch at ``position`` brought after those asked for before. Raises ClosedError."""
        ask = Ask(position)
        self._asks.put(ask)
        if self._is_closing:  # nobody may be there to answer
            raise ClosedError("the loader was closed")
        return ask

    def close(self) -> None:
        """Close the supply and end the thread, whatever it waits for; may be called again, from any thread."""
        deadline_s = time.monotonic() + _CLOSE_S
        self._is_closing = True
        self._asks.put(None)
        self._supply.close()
        self._thread.join(_SOON_S)
        if self._thread.is_alive():  # it was about to begin when the supply was closed, and has opened it again
            self._supply.close()
            self._thread.join(max(0.0, deadline_s - time.monotonic()))

    def _run(self) -> None:
        copier: Copier | None = None
        while (ask := self._asks.get()) is not None:
            if not ask.is_dropped:
                try:
                    copier = copier or self._make_copier()
                    ask.answer.put(self._carry(ask.position, copier))
                except BaseException as error:  # noqa: BLE001  # the thread's outermost loop: the trainer must hear of it
                    ask.answer.put(error)
            del ask  # or it would be held, with its batch, until the next one
        if copier is not None:
            copier.close()

    def _carry(self, position: Position, copier: Copier) -> Carried:
        if self._is_closing:
            raise ClosedError("the loader was closed while a batch was waited for")
        before = Waits.of_supply(self._supply.stats())
        delivery = self._supply.next(position)
        begun_s = time.monotonic()
        on_device = copier.copy(delivery.batch, delivery.device_fields)
        ready_s = time.monotonic()
        waits = Waits.of_supply(self._supply.stats()) - before + Waits(device=ready_s - begun_s)
        return Carried(delivery, on_device, waits, ready_s)
