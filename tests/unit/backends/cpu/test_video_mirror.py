"""Videos that are to be shown mirrored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stoker import ops
from stoker.backends.cpu.video_mirror import is_mirrored
from support import videos
from support.ops import run

MP4 = videos.encode()

SHOWN: dict[str, tuple[tuple[int, int, int, int], Any]] = {
    "as it is": ((1, 0, 0, 1), lambda clip: clip),
    "half": ((-1, 0, 0, -1), lambda clip: clip[:, ::-1, ::-1]),
    "clockwise": ((0, 1, -1, 0), lambda clip: np.rot90(clip, -1, axes=(1, 2))),
    "horizontally": ((-1, 0, 0, 1), lambda clip: clip[:, :, ::-1]),
    "vertically": ((1, 0, 0, -1), lambda clip: clip[:, ::-1]),
    "transposed": ((0, 1, 1, 0), lambda clip: clip.transpose(0, 2, 1, 3)),
    "transverse": ((0, -1, -1, 0), lambda clip: clip[:, ::-1, ::-1].transpose(0, 2, 1, 3)),
}


def with_matrix(file: bytes, matrix: tuple[int, int, int, int], box: bytes, offset: int) -> bytes:
    a, b, c, d = ((each << 16).to_bytes(4, "big", signed=True) for each in matrix)
    at, zero, one = file.index(box) + 4 + offset, bytes(4), (1 << 30).to_bytes(4, "big")
    return file[:at] + a + b + zero + c + d + zero + zero + zero + one + file[at + 36 :]


def decoded(file: bytes) -> NDArray[np.uint8]:
    return np.asarray(run(ops.DecodeVideo("mp4", num_frames=2, start=5), {"mp4": file}).fields["mp4"])


@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize("box, offset", [(b"tkhd", 40), (b"mvhd", 36)])
def test_frames_are_as_a_viewer_shows_them(shown: str, box: bytes, offset: int) -> None:
    """Once by the matrix of the track, once by that of the movie."""
    matrix, change = SHOWN[shown]
    np.testing.assert_array_equal(decoded(with_matrix(MP4, matrix, box, offset)), change(decoded(MP4)))


def test_only_an_mp4_s_own_track_counts() -> None:
    mirrored = with_matrix(MP4, (-1, 0, 0, 1), b"tkhd", 40)
    assert is_mirrored(mirrored, 1)
    assert not is_mirrored(mirrored, 2)
    assert not is_mirrored(MP4, 1)


def test_any_bytes_are_read() -> None:
    """Files that are cut or damaged are found elsewhere: here they are not mirrored, or are, and no error."""
    mirrored = with_matrix(videos.encode(3, index_first=True), (-1, 0, 0, 1), b"tkhd", 40)
    assert not is_mirrored(b"", 1)
    assert not is_mirrored(videos.encode(3, "matroska"), 1)
    for end in range(0, len(mirrored), 7):
        is_mirrored(mirrored[:end], 1)
    rng = np.random.default_rng(36)
    for _ in range(300):
        damaged = bytearray(mirrored)
        for at in rng.integers(0, min(len(damaged), 900), 8):
            damaged[at] = rng.integers(256)
        is_mirrored(bytes(damaged), 1)
