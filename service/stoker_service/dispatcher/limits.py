"""What the dispatcher refuses, in words that say what to do."""

from __future__ import annotations

from typing import Literal

from stoker_service.dispatcher.events import JobOpened
from stoker_service.dispatcher.model import Worker
from stoker_service.limits import MAX_LANES

MAX_MESSAGE_BYTES = 4 << 20
"""Of one control message; also what gRPC's clients take unless told otherwise."""

MAX_JOBS = 1024
MAX_WORKERS = 16_384
MAX_CLIENTS = 65_536
MAX_ID_LETTERS = 256

Kind = Literal["invalid", "exhausted", "incompatible", "not found", "ending"]


class RefusedError(Exception):
    """A call is refused; ``kind`` becomes the status, the text says what was expected, what was found, what to do."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


def check_message(num_bytes: int) -> None:
    if num_bytes > MAX_MESSAGE_BYTES:
        text = f"expected a message of at most {MAX_MESSAGE_BYTES} bytes, found {num_bytes}"
        raise RefusedError("exhausted", f"{text}; data go to workers, not through the dispatcher")


def check_id(name: str, value: str) -> None:
    if not value:
        raise RefusedError("invalid", f"{name}: expected a text, found nothing; send it in every call")
    if len(value) > MAX_ID_LETTERS:
        text = f"{name}: expected at most {MAX_ID_LETTERS} letters, found {len(value)}"
        raise RefusedError("invalid", f"{text} ({value[:20]!r} …); choose a shorter one")


def check_worker(worker: Worker, num_workers: int) -> None:
    """``num_workers``: those who are there beside it."""
    check_id("worker_id", worker.worker_id)
    check_id("location", worker.location)
    if "://" not in worker.location:
        text = f"location: expected a place such as grpc://10.0.0.7:4301, found {worker.location!r}"
        raise RefusedError("invalid", f"{text}; tell where the worker's Flight server listens")
    if num_workers >= MAX_WORKERS:
        text = f"expected at most {MAX_WORKERS} workers, found {num_workers} and one more"
        raise RefusedError("exhausted", f"{text}; give the others more threads, or start a second service")


def check_job(event: JobOpened, *, is_new: bool, num_jobs: int, num_clients: int, is_ending: bool) -> None:
    """``is_new``: no client of this job is there yet."""
    job = event.job
    check_id("pipeline", job.key.pipeline)
    check_id("client_id", event.client_id)
    check_id("name", job.key.name)
    if not 1 <= job.num_lanes <= MAX_LANES:
        text = f"num_lanes: expected 1 to {MAX_LANES}, found {job.num_lanes}"
        raise RefusedError("invalid", f"{text}; change lanes=… of the pipeline")
    if not 0 <= event.rank < job.world_size:
        text = f"rank: expected 0 to world_size - 1, found rank {event.rank} of world_size {job.world_size}"
        raise RefusedError("invalid", f"{text}; look at the loader's rank and world_size")
    if is_ending:
        raise RefusedError("ending", "expected a service that runs, found one that ends; start it again: stoker up")
    if is_new and num_jobs >= MAX_JOBS:
        text = f"expected at most {MAX_JOBS} jobs at one time, found {num_jobs} and one more"
        raise RefusedError("exhausted", f"{text}; close loaders that are done, or start a second service")
    if num_clients >= MAX_CLIENTS:
        text = f"expected at most {MAX_CLIENTS} clients, found {num_clients} and one more"
        raise RefusedError("exhausted", f"{text}; close loaders that are done, or start a second service")


def check_version(
    protocol: int, oldest: int, release: str, *, our_protocol: int, our_oldest: int, our_release: str
) -> None:
    """Refuse a peer with which no protocol is common; ``oldest`` 0 means none but ``protocol``."""
    oldest = oldest or protocol
    if oldest <= our_protocol and protocol >= our_oldest:
        return
    who = f"the caller, Stoker {release or 'of an unknown release'}," if protocol else "a caller older than any release"
    older = "the caller" if protocol < our_oldest else "the dispatcher and its workers"
    raise RefusedError(
        "incompatible",
        f"expected a caller that speaks a protocol from {our_oldest} to {our_protocol}, as this dispatcher of Stoker "
        f"{our_release} does; found {who} with {oldest} to {protocol}: upgrade {older}",
    )


def one_worker(prefix: str, found: tuple[str, ...]) -> str:
    """The only worker whose id begins with ``prefix``."""
    check_id("worker_id", prefix)
    if not found:
        text = f"expected the id of a worker or its beginning, found no worker that fits {prefix!r}"
        raise RefusedError("not found", f"{text}; `stoker status` lists them")
    if len(found) > 1:
        shown = ", ".join(found[:5]) + (" …" if len(found) > 5 else "")
        text = f"expected a worker's id or a beginning of it that fits one, found that {prefix!r} fits {len(found)}"
        raise RefusedError("invalid", f"{text} ({shown}); give more letters")
    return found[0]
