"""The back-end is a guest: it starts no threads, changes no settings, and gives the same pixels in any thread."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from stoker import ops
from support import pictures
from support.ops import image

CHAIN = [ops.DecodeImage("image"), ops.RandomResizedCrop("image", 224), ops.RandomHorizontalFlip("image")]
FILES = [pictures.jpeg(seed, 500, 375) for seed in range(8)]


def one(number: int) -> NDArray[np.uint8]:
    draws = np.random.default_rng(number).random(23).tolist()
    return image(CHAIN, FILES[number % len(FILES)], draws)


def num_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_pixels_do_not_depend_on_the_thread() -> None:
    expected = [one(number) for number in range(64)]
    with ThreadPoolExecutor(4) as pool:
        for alone, beside in zip(expected, pool.map(one, range(64)), strict=True):
            assert (alone == beside).all()


def test_a_decoding_thread_starts_no_other() -> None:
    one(0)
    started, done = threading.Barrier(3), threading.Barrier(3)

    def work() -> None:
        for number in range(8):
            one(number)
        started.wait()
        done.wait()

    before = num_threads()
    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    started.wait()
    during = num_threads()
    done.wait()
    for thread in threads:
        thread.join()
    assert during <= before + 2


def test_settings_of_torch_and_opencv_are_left_alone() -> None:
    before = torch.get_num_threads(), cv2.getNumThreads(), torch.initial_seed()
    one(0)
    assert (torch.get_num_threads(), cv2.getNumThreads(), torch.initial_seed()) == before
