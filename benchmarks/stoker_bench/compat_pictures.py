"""JPEG files in class folders, and the two ways in which training examples read them."""

from __future__ import annotations

import tarfile
from pathlib import Path

import torch
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2

from stoker_bench.datasets import MadeShards

MEAN = [0.485, 0.456, 0.406]
STD = [0.229, 0.224, 0.225]


def files_of(made: MadeShards) -> Path:
    """The pictures of the shards as files, one folder for each label; made once."""
    root = made.folder / "files"
    if len(list(root.glob("*/*.jpg"))) != made.num_rows:
        for shard in made.shards:
            with tarfile.open(shard) as tar:
                for member in tar:
                    content = tar.extractfile(member) if member.name.endswith(".jpg") else None
                    if content is not None:
                        path = root / member.name.partition("-")[0] / Path(member.name).name
                        path.parent.mkdir(parents=True, exist_ok=True)
                        path.write_bytes(content.read())
    return root


def pillow(root: Path) -> ImageFolder:
    """As torchvision's ImageNet example: Pillow pictures, float32 CHW."""
    steps = [
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ]
    return ImageFolder(str(root), transforms.Compose(steps))


def tensors(root: Path) -> ImageFolder:
    """The same with torchvision's own decoder and v2 transforms, which release the interpreter's lock as they work."""
    steps = [
        v2.RandomResizedCrop(224, antialias=True),
        v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, STD),
    ]
    return ImageFolder(str(root), v2.Compose(steps), loader=_decoded)


def _decoded(path: str) -> torch.Tensor:
    decoded: torch.Tensor = decode_jpeg(read_file(path), mode=ImageReadMode.RGB)
    return decoded
