"""A torch DataLoader with torchvision's own JPEG decoder and v2 transforms on tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import v2

from stoker_bench.peers.rows import Row, RowReader


class TensorDataset(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Map-style: the same random resized crop and flip as ``imagenet_train``, uint8 CHW."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._reader = RowReader()
        self._transform = v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        row = self._rows[index]
        encoded = torch.frombuffer(bytearray(self._reader.read(row)), dtype=torch.uint8)
        return self._transform(decode_jpeg(encoded, mode=ImageReadMode.RGB)), row.label
