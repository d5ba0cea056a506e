"""A child process in which samples are tried that may end the process that makes them."""

from __future__ import annotations

import pickle
import time
from typing import Final

from stoker.backends.options import Backend
from stoker.engine.vetting_child import READY, TRIED, Trial
from stoker.errors import ClosedError, WorkerError
from stoker.processes.channel import Channel, ChannelClosedError, wait
from stoker.processes.launch import WorkerProcess, launch
from stoker.processes.payload import Payload

_PROGRAM: Final = "stoker.engine.vetting_child:main"
_OPEN_S: Final = 180.0
"""For a child's imports, which may come from a slow network disk."""

_ENDING_S: Final = 1.0

TRIES: Final = 2
"""One end of a process may be an accident; the same sample's second is none."""


class Sandbox:
    """Starts the child when it is needed, and again when it has ended; for one thread.

    ``closing`` is readable from the moment on at which all waits should end, with ClosedError.
    """

    def __init__(self, backend: Backend, payload: Payload, closing: Channel, row_s: float) -> None:
        self._backend = backend
        self._payload = payload
        self._closing = closing
        self._row_s = row_s
        self._process: WorkerProcess | None = None

    def verdict(self, trial: Trial) -> str | None:
        """What is wrong with a sample that ends its process, or holds it up, each time; None if it does not.

        Raises WorkerError if there is no process to be had, ClosedError.
        """
        how: str | None = ""
        for _ in range(TRIES):
            how = self._try(trial)
            if how is None:
                return None
        return f"making it ended its process {TRIES} times: {how}"

    def close(self) -> None:
        """End the child; another one comes when it is needed. Within a second."""
        if self._process is not None:
            self._process.close(time.monotonic())
            self._process = None

    def _try(self, trial: Trial) -> str | None:
        """How a sample ended the child; None if it did not."""
        process = self._process or self._start()
        try:
            process.channel.send([pickle.dumps(trial)])
            answer = self._answer(process, self._row_s)
        except ChannelClosedError:
            how = f"it {process.ending(_ENDING_S) or 'hung up'}"
        else:
            if answer == TRIED:
                return None
            how = f"it took more than {self._row_s:g} s and was killed"
        self.close()
        return how

    def _start(self) -> WorkerProcess:
        process = self._process = launch(_PROGRAM, "stoker-sandbox")
        try:
            process.channel.send([pickle.dumps(self._backend)], (self._payload.fd,))
            answer = self._answer(process, _OPEN_S)
        except ChannelClosedError:
            how = process.ending(_ENDING_S) or "hung up"
            self.close()
            raise WorkerError(f"the process in which samples are tried {how}, before it was given one") from None
        if answer != READY:
            self.close()
            raise WorkerError(f"the process in which samples are tried was not ready within {_OPEN_S:g} s")
        return process

    def _answer(self, process: WorkerProcess, timeout_s: float) -> bytes | None:
        """What the child says; None if it says nothing in time. Raises ChannelClosedError, ClosedError."""
        end_s = time.monotonic() + timeout_s
        while (left_s := end_s - time.monotonic()) > 0:
            ready = wait([self._closing, process.channel], left_s)
            if self._closing in ready:
                raise ClosedError("the loader was closed while a sample was tried")
            message = process.channel.receive(0.0)
            if message is not None:
                return bytes(message.body)
        return None
