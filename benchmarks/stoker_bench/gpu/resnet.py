"""ResNet-50 in plain PyTorch, for machines without torchvision: He et al. 2015, stride in the 3 × 3 convolution."""

from __future__ import annotations

import torch
from torch import nn

_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Width, blocks, stride of the first block."""
_EXPANSION = 4


class Bottleneck(nn.Module):
    """1 × 1, 3 × 3, 1 × 1, and the way past them."""

    def __init__(self, num_in: int, width: int, stride: int) -> None:
        super().__init__()
        num_out = _EXPANSION * width
        self.body = nn.Sequential(
            *_normed(num_in, width, 1),
            nn.ReLU(inplace=True),
            *_normed(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *_normed(width, num_out, 1),
        )
        is_same = num_in == num_out and stride == 1
        self.past = nn.Identity() if is_same else nn.Sequential(*_normed(num_in, num_out, 1, stride))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One block."""
        made: torch.Tensor = self.relu(self.body(x) + self.past(x))
        return made


def resnet50(num_classes: int = 1000) -> nn.Module:
    """25.6 million weights, at random."""
    blocks: list[nn.Module] = []
    num_in = 64
    for width, num_blocks, stride in _STAGES:
        for index in range(num_blocks):
            blocks.append(Bottleneck(num_in, width, stride if index == 0 else 1))
            num_in = _EXPANSION * width
    stem = [*_normed(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(num_in, num_classes))


def _normed(num_in: int, num_out: int, size: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(num_in, num_out, size, stride, size // 2, bias=False), nn.BatchNorm2d(num_out)
