"""A torch DataLoader with torchvision's usual transforms on Pillow images."""

from __future__ import annotations

import io
from collections.abc import Sequence

import torch
from PIL import Image
from torchvision import transforms

from stoker_bench.peers.rows import Row, RowReader


class PillowDataset(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """Map-style: the same random resized crop and flip as ``imagenet_train``, uint8 CHW."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._reader = RowReader()
        self._transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(224, antialias=True),
                transforms.RandomHorizontalFlip(),
                transforms.PILToTensor(),
            ]
        )

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        row = self._rows[index]
        with Image.open(io.BytesIO(self._reader.read(row))) as image:
            return self._transform(image.convert("RGB")), row.label
