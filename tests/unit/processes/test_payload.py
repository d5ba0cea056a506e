"""Objects go to other processes whole, and their large parts once."""

import fcntl
import functools
import gc
import io
import mmap
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray

from stoker.errors import SpecError
from stoker.processes.payload import Payload, fingerprint, pack, unpack
from stoker.processes.shared_list import SharedList

A = np.random.default_rng(7).random((200, 30))


def loaded(value: Any) -> Any:
    payload = pack(value, "value")
    opened = unpack(payload.fd)
    payload.close()
    return opened.load()


def refusal_of(value: Any) -> str:
    with pytest.raises(SpecError) as caught:
        pack(value, "dataset")
    with pytest.raises(SpecError) as again:
        fingerprint(value, "dataset")
    assert str(again.value) == str(caught.value)
    return str(caught.value)


ARRAYS: dict[str, NDArray[Any]] = {
    "plain": A,
    "Fortran": np.asfortranarray(A),
    "turned": A[::-1],
    "with gaps": A[:, :3],
    "turned with gaps": A[::-1, ::-2],
    "broadcast": np.broadcast_to(A, (50, 200, 30)),
    "transposed": A.reshape(10, 20, 30).transpose(2, 0, 1),
    "windows": np.lib.stride_tricks.sliding_window_view(np.arange(5000), 100),
    "empty": np.zeros((0, 5)),
    "scalar": np.array(4.0),
    "small": np.arange(3, dtype=">i2"),
    "objects": np.array([1, "a", None, [2]], object),
    "structured": np.array([(1, 2.0, "x")] * 500, dtype=[("a", "i4"), ("b", "f8"), ("c", "U3")]),
    "dates": np.arange(1000).astype("M8[s]"),
    "texts": np.array(["abc", "de"] * 1000),
    "bfloat16": np.arange(3000).astype(ml_dtypes.bfloat16),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(name: str) -> None:
    before = ARRAYS[name]
    found = loaded({"array": before})["array"]
    assert (found.dtype, found.shape, type(found)) == (before.dtype, before.shape, type(before))
    assert found.tolist() == before.tolist()
    assert found.flags.writeable == before.flags.writeable
    if "gaps" not in name and before.size:
        assert found.strides == before.strides


def test_virtual_arrays_are_not_made_real() -> None:
    payload = pack(np.broadcast_to(A, (10_000, *A.shape)), "array")
    assert payload.num_bytes < A.nbytes + 4096


def test_read_only_arrays_stay_so() -> None:
    for size in (3, 3000):
        frozen = np.arange(size)
        frozen.flags.writeable = False
        assert not loaded(frozen).flags.writeable


def test_each_copy_is_independent() -> None:
    payload = pack({"a": A, "t": torch.arange(5000.0)}, "x")
    opened = unpack(payload.fd)
    first, second = opened.load(), opened.load()
    first["a"][0] = -1
    first["t"][0] = -1
    assert (second["a"] == A).all()
    assert second["t"][0] == 0
    assert (opened.load()["a"] == A).all()
    assert first["a"].ctypes.data % 64 == 0


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_maps_of_files_are_mapped_again(tmp_path: Path, mode: Any) -> None:
    path = tmp_path / "numbers"
    np.arange(10_000, dtype="i4").tofile(path)
    whole = np.memmap(path, "i4", mode, offset=4136, shape=(500, 3))
    views: list[NDArray[Any]] = [whole, whole[10:20], whole[::-2, 1:], whole.T[1], np.asarray(whole)[5:]]
    for view in views:
        payload = pack(view, "map")
        assert payload.num_bytes < 2048
        found = unpack(payload.fd).load()
        assert type(found) is type(view)
        assert found.tolist() == view.tolist()
        assert (found.flags.writeable, found.strides) == (view.flags.writeable, view.strides)
        if isinstance(found, np.memmap):
            assert (found.mode, found.filename) == (mode, whole.filename)
    again = loaded(whole)
    if mode == "r+":
        again[0] = 77
        assert whole[0, 0] == 77
    path.unlink()
    assert loaded(whole).tolist() == whole.tolist()


def test_tensors_keep_what_they_share() -> None:
    base = torch.arange(10_000.0)
    found = loaded({"base": base, "part": base[5:10], "turned": base.view(100, 100).t()})
    found["part"][0] = -1
    assert found["base"][5] == -1
    found["base"][6] = -2
    assert found["turned"][6, 0] == -2
    assert base[5] == 5


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(4000, dtype=torch.bfloat16),
        torch.ones(2, 3, 40, 50).to(memory_format=torch.channels_last),
        torch.ones(5000, requires_grad=True),
        torch.nn.Parameter(torch.ones(3)),
        torch.empty(0, 3),
        torch.ones(1).expand(10_000),
        torch.ones(3, dtype=torch.complex64).conj(),
        torch.ones(3000, dtype=torch.uint16),
        torch.arange(3000).to(torch.float8_e4m3fn),
        torch.tensor(True),
    ],
    ids=lambda tensor: f"{tensor.dtype}{tuple(tensor.shape)}",
)
def test_tensors(tensor: torch.Tensor) -> None:
    found = loaded([tensor])[0]
    assert type(found) is type(tensor)
    assert (found.dtype, found.stride(), found.requires_grad) == (tensor.dtype, tensor.stride(), tensor.requires_grad)
    assert found.tolist() == tensor.tolist()


def test_sparse_tensors_and_modules() -> None:
    assert torch.equal(loaded(torch.eye(900).to_sparse()).to_dense(), torch.eye(900))
    assert not torch._utils._sparse_tensors_to_validate
    layer = torch.nn.Linear(100, 100)
    assert torch.equal(loaded(layer).weight, layer.weight)
    storage = torch.arange(5000.0).untyped_storage()
    assert bytes(loaded(storage)) == bytes(storage)


def test_tensors_of_a_device_are_refused() -> None:
    text = refusal_of(
        {"t": [torch.empty(4, device="meta").untyped_storage()]}
    )  # stands for cuda: the one device always here
    assert text.startswith("dataset['t'][0] (torch.storage.UntypedStorage) cannot be sent to worker processes: it lies")
    assert ".cpu()" in text


def test_arrow_tables_lie_apart() -> None:
    table = pa.table({"a": list(range(10_000)), "s": ["x" * (i % 50) for i in range(10_000)]})
    found = loaded({"t": table, "b": table.to_batches()[0].slice(5, 10)})
    assert found["t"].equals(table)
    assert found["b"].equals(table.to_batches()[0].slice(5, 10))


def test_a_list_twice_is_one_list() -> None:
    names = [f"{i}" for i in range(5000)]
    found = loaded({"a": names, "b": [names]})
    assert type(found["a"]) is SharedList
    assert found["a"] is found["b"][0]
    again = loaded(found)
    assert type(again["a"]) is SharedList
    again["a"].append(None)
    assert loaded(again)["a"] == [*names, None]


def test_lists_that_do_not_fit_to_their_end() -> None:
    odd: list[Any] = [*range(100_000), None]
    names = [f"{i}" for i in range(5000)]
    found = loaded([odd, odd, names])
    assert type(found[0]) is list
    assert found == [odd, odd, names]
    assert found[0] is found[1]


def test_rings() -> None:
    ring: list[Any] = [np.arange(1000)]
    ring.append(ring)
    found = loaded(ring)
    assert found[1] is found


def test_a_payload_cannot_be_changed_and_goes_elsewhere() -> None:
    payload = pack([A, "x"], "x")
    with pytest.raises(PermissionError):
        os.pwrite(payload.fd, b"x", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(payload.fd, 1)
    with pytest.raises(PermissionError):
        mmap.mmap(payload.fd, payload.num_bytes)
    view = payload.view()
    assert len(view) == payload.num_bytes
    copied = Payload.of([view[:1000], bytes(view[1000:])], len(view))
    payload.close()
    payload.close()
    assert (unpack(copied.fd).load()[0] == A).all()
    assert fcntl.fcntl(copied.fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    with pytest.raises(ValueError, match="expected 7 bytes"):
        Payload.of([b"abc"], 7)
    other = Payload.of([bytes(100)], 100)
    with pytest.raises(ValueError, match="no payload"):
        unpack(other.fd).load()


def test_descriptors_are_closed_with_the_last_user() -> None:
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        loaded({"a": A})
        refusal_of(threading.Lock())
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_needs_one_more_copy_at_most(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import sys
        import numpy as np
        from pathlib import Path
        from stoker.processes.payload import fingerprint, pack
        kinds = {
            "array": lambda: np.ones(15_000_000),
            "bytes": lambda: {i: b"x" * (1_000_000 + i) for i in range(100)},
            "texts": lambda: [f"/some/folder/of/many/n{i:012d}/a-name-{i:022d}.jpeg" for i in range(1_000_000)],
        }
        def status(name):
            line = next(l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith(name))
            return int(line.split()[1]) * 1024
        empty = status("VmRSS")
        value = kinds[sys.argv[1]]()
        full = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")
        payload = pack(value, "x")
        size = full - empty
        extra = status("VmHWM") - full
        print(f"object {size >> 20} MB, own memory meanwhile {extra >> 20} MB, payload {payload.num_bytes >> 20} MB")
        assert payload.num_bytes < size * 1.05
        assert payload.num_bytes + extra < size * 1.25 + (32 << 20)
        before = status("VmRSS")
        fingerprint(value)
        assert status("VmHWM") < max(before, full + extra) + (32 << 20)
        """)
    )
    for kind in ("array", "bytes", "texts"):
        subprocess.run([sys.executable, str(script), kind], check=True, timeout=60)


# -- code --------------------------------------------------------------------------------------------------------------


def test_code_goes_by_value(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import dataclasses, enum, functools, os, subprocess, sys
        import mine
        from stoker.processes.payload import pack

        class Colour(enum.Enum):
            RED = 1

        @dataclasses.dataclass(frozen=True, slots=True)
        class Point:
            x: int
            colour: Colour = Colour.RED

        class Dataset:
            def __init__(self, n):
                self.n = n
                def count(i): return 0 if i == 0 else 1 + count(i - 1)  # refers to itself
                self.count = count
                self.shift = lambda i: i + n
                self.part = functools.partial(pow, 2)
                self.bound = self.square
                self.print = print
                self.error = sys.stderr
                self.module = mine
            def square(self, i): return i * i
            def __getitem__(self, i):
                others = mine.double(i), self.module.double(i)
                return Point(self.shift(i)), self.count(i), self.part(i), self.bound(i), *others

        if __name__ == "__main__":
            payload = pack(Dataset(3), "dataset")
            os.set_inheritable(payload.fd, True)
            child = '''
        import sys
        from stoker.processes.payload import unpack
        opened = unpack(int(sys.argv[1]))
        dataset, other = opened.load(), opened.load()
        assert type(dataset) is type(other)
        point, *others = dataset[4]
        assert (point.x, point.colour.name, others) == (7, "RED", [4, 16, 16, 8, 8]), (point, others)
        assert point == other[4][0] and point.colour is other[4][0].colour
        assert dataset.bound.__self__ is dataset
        assert dataset.error is sys.stderr
        assert dataset.module is sys.modules["mine"]
        '''
            subprocess.run([sys.executable, "-c", child, str(payload.fd)], close_fds=False, check=True, timeout=60)
        """)
    )
    (tmp_path / "mine.py").write_text("def double(i): return 2 * i\n")
    folders = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    subprocess.run([sys.executable, str(script)], check=True, timeout=60, env={**os.environ, "PYTHONPATH": folders})


def test_modules_go_along_if_asked(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text("FACTOR = 3\ndef triple(i): return FACTOR * i\n")
    script = "import sys, theirs; from stoker.processes.payload import pack; p = pack(theirs.triple, 'f', "
    script += "ships_modules=True); sys.stdout.buffer.write(p.view())"
    folders = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    made = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": folders},
        timeout=60,
    ).stdout
    assert unpack((payload := Payload.of([made], len(made))).fd).load()(4) == 12
    assert payload.num_bytes == len(made)


# -- what is in the way ------------------------------------------------------------------------------------------------


class Holder:
    def __init__(self, **parts: Any) -> None:
        vars(self).update(parts)


class Careful(Holder):
    def __getstate__(self) -> dict[str, Any]:
        return {name: part for name, part in vars(self).items() if name != "lock"}


def closure_over(value: Any) -> Callable[[], Any]:
    return lambda: value


def test_names_the_innermost_part(tmp_path: Path) -> None:
    lock = threading.Lock()
    path = tmp_path / "file"
    path.write_text("x")
    with path.open() as text, path.open("rb") as binary, io.FileIO(path) as raw:
        for value, place in (
            (Holder(transform=closure_over(text)), ".transform.closure 'value' (_io.TextIOWrapper)"),
            (Holder(a=[1, {"b": binary}]), ".a[1]['b'] (_io.BufferedReader)"),
            (Holder(f=functools.partial(max, key=closure_over(raw))), ".f.argument 'key'.closure 'value' (_io.FileIO)"),
            (Holder(lock=lock), ".lock (_thread.lock)"),
            (Holder(bound=Holder(lock=lock).__init__), ".bound.self.lock (_thread.lock)"),  # type: ignore[misc]
            (Holder(items=(i for i in range(3))), ".items (generator)"),
            (Careful(lock=lock, other={2: lock}), ".other[2] (_thread.lock)"),
            (Holder(array=np.array([1, lock], object)), ".array[1] (_thread.lock)"),
            (Holder(**{f"part{i}": i for i in range(5000)}, z=lock), ".z (_thread.lock)"),
        ):
            text_ = refusal_of(value)
            assert text_.startswith(f"dataset{place} cannot be sent to worker processes: "), text_
            for remedy in ("at first use", "__getstate__", 'multiprocessing_context="fork"'):
                assert remedy in text_
    assert loaded(Careful(lock=lock, a=1)).a == 1


def test_large_parts_do_not_hide_the_bad_one() -> None:
    lock = threading.Lock()
    value = Holder(
        array=np.ones(25_000_000),
        names=[f"name {i}" for i in range(1_000_000)],
        table={i: str(i) for i in range(500_000)},
        inner=Holder(array=np.ones(25_000_000), parts=[*range(50_000), lock]),
        tensor=torch.ones(25_000_000),
    )
    start_s = time.process_time()
    with pytest.raises(SpecError, match=re.escape("dataset.inner.parts[50000] (_thread.lock)")):
        pack(value, "dataset")
    assert time.process_time() - start_s < 6  # 1 s where the machine has nothing else to do


def test_what_is_left_of_a_refusal_does_no_harm() -> None:
    for _ in range(3):
        ring = Holder(array=np.ones(100_000), view=np.ones(9000).data, names=[f"{i}" for i in range(5000)])
        ring.ring, ring.lock = ring, threading.Lock()  # type: ignore[attr-defined]
        with pytest.raises(SpecError) as refused:
            pack(ring, "ring")
        ring.error = refused.value  # type: ignore[attr-defined]
        del ring, refused
        gc.collect()  # Python crashes if a memoryview in a ring is cleared while its memory is lent


def test_endless_recursion_is_an_error() -> None:
    deep: Any = None
    for _ in range(200_000):
        deep = [deep]
    assert "recursion" in refusal_of(deep)
    while deep is not None:  # without the interpreter's own recursion
        deep = deep[0]
