"""Whatever happens to a cache's folder: right bytes, a budget that holds, and foreign files untouched."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stoker.storage.cache import CacheOptions, ChunkCache
from stoker.storage.use import NEVER, Use
from support.cache_process import full_disk
from support.caching import Clock, Origin, body, bytes_in, files_in, ranges, stored

SIZES = [100, 1000, 1000, 1000, 2000, 2000, 5000, 9000, 9000, 30_000, 1000, 1000]
MAX_BYTES = stored(SIZES) // 3
MAX_FILES = 5
MAX_RAM_BYTES = 5000
NUM_CACHES = 3
FOREIGN = b"not made by a cache"

indices = st.lists(st.integers(0, len(SIZES) - 1), min_size=1, max_size=4)
next_uses = st.sampled_from([NEVER, -1.0, 0.0, 0.1, 0.5, 1.0, 1.5])


class CacheMachine(RuleBasedStateMachine):
    """Several caches on one folder; the model is what the origin has."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp()) / "cache"
        self.clock = Clock()
        self.origin = Origin()
        self.ranges = ranges(SIZES)
        self.foreign: list[Path] = []
        self.caches: list[ChunkCache] = []

    @initialize()
    def begin(self) -> None:
        self.caches = [self._open(i) for i in range(NUM_CACHES)]

    def _open(self, number: int) -> ChunkCache:
        options = CacheOptions(
            str(self.folder),
            disk_bytes=MAX_BYTES,
            max_files=MAX_FILES,
            reserve_bytes=0,
            ram_bytes=MAX_RAM_BYTES if number == 0 else 0,
        )
        return ChunkCache(options, clock=self.clock)

    @rule(number=st.integers(0, NUM_CACHES - 1), some=indices, ahead=next_uses, job=st.sampled_from(["a", "b"]))
    def read(self, number: int, some: list[int], ahead: float, job: str) -> None:
        self.clock.at_s += 1.0
        now = (self.clock.at_s - 1e9) / 20
        wanted = [self.ranges[i] for i in some]
        uses = [Use(job, now, now + ahead + i / 1000) for i in some]
        assert self.caches[number].read(wanted, uses, self.origin) == [body(each) for each in wanted]

    @rule(number=st.integers(0, NUM_CACHES - 1), some=indices, limit=st.sampled_from([0, 100, 1500, 40_000]))
    def read_while_the_disk_is_full(self, number: int, some: list[int], limit: int) -> None:
        with full_disk(limit):
            self.read(number, some, 0.3, "a")

    @rule(number=st.integers(0, NUM_CACHES - 1), index=st.integers(0, len(SIZES) - 1))
    def drop(self, number: int, index: int) -> None:
        self.caches[number].drop(self.ranges[index])

    @rule(number=st.integers(0, NUM_CACHES - 1))
    def open_again(self, number: int) -> None:
        self.caches[number].close()
        self.caches[number] = self._open(number)

    @rule(number=st.integers(0, NUM_CACHES - 1), index=st.integers(0, 7))
    def heal(self, number: int, index: int) -> None:
        """After a while it keeps what is read soon, whatever was broken."""
        self.clock.at_s += 700.0  # nobody waits for what is held
        self.read(number, [index], 0.01, "healer")
        self.read(number, [index], 0.01, "healer")
        before = self.origin.num_calls
        self.read(number, [index], 0.01, "healer")
        assert self.origin.num_calls == before

    @precondition(lambda self: bool(files_in(self.folder)))
    @rule(choice=st.randoms(use_true_random=False))
    def flip_a_byte(self, choice: object) -> None:
        path = self._any_file(choice)
        content = bytearray(path.read_bytes())
        if content:
            content[choice.randrange(len(content))] ^= 16  # type: ignore[attr-defined]
            path.write_bytes(content)

    @precondition(lambda self: bool(files_in(self.folder)))
    @rule(choice=st.randoms(use_true_random=False), length=st.integers(0, 300))
    def tear(self, choice: object, length: int) -> None:
        path = self._any_file(choice)
        path.write_bytes(path.read_bytes()[:length])

    @precondition(lambda self: bool(files_in(self.folder)))
    @rule(choice=st.randoms(use_true_random=False))
    def lose(self, choice: object) -> None:
        self._any_file(choice).unlink()

    @precondition(lambda self: len(files_in(self.folder)) > 1)
    @rule()
    def exchange(self) -> None:
        one, other = sorted(files_in(self.folder), key=lambda each: each.stat().st_size)[:2]
        other.write_bytes(one.read_bytes())

    @rule(garbage=st.sampled_from([None, b"", b"garbage" * 1000]))
    def break_the_ledger(self, garbage: bytes | None) -> None:
        ledger = self.folder / "ledger.sqlite"
        if garbage is None:
            ledger.unlink(missing_ok=True)
        else:
            ledger.write_bytes(garbage)

    @rule(name=st.sampled_from(["keep.txt", "entries/keep.txt", "parts/keep.txt"]))
    def put_a_foreign_file(self, name: str) -> None:
        self.foreign.append(self.folder / name)
        self.foreign[-1].write_bytes(FOREIGN)

    @invariant()
    def the_budget_holds(self) -> None:
        assert bytes_in(self.folder) <= MAX_BYTES
        assert len(files_in(self.folder)) <= MAX_FILES
        assert all(each.stats().held_ram_bytes <= MAX_RAM_BYTES for each in self.caches)

    @invariant()
    def foreign_files_are_untouched(self) -> None:
        assert all(each.read_bytes() == FOREIGN for each in self.foreign)

    def teardown(self) -> None:
        for each in self.caches:
            each.close()
        shutil.rmtree(self.folder.parent)

    def _any_file(self, choice: object) -> Path:
        return choice.choice(sorted(files_in(self.folder)))  # type: ignore[attr-defined, no-any-return]


TestCache = CacheMachine.TestCase
# Not made smaller: that takes minutes, and the steps say enough.
TestCache.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
