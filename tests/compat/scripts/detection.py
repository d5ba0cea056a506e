"""Train a toy detector whose pictures have different sizes and numbers of boxes: ``detection.py FOLDER [NUM_WORKERS]``.

The annotations are one JSON file; the collate function keeps lists, as torchvision's detection references do.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

folder = Path(sys.argv[1])
num_workers = int(sys.argv[2]) if len(sys.argv) > 2 else 2

random.seed(2)
np.random.seed(2)  # users do this
torch.manual_seed(2)
torch.set_num_threads(1)


class Scenes(Dataset):  # type: ignore[type-arg]
    """Pictures with their boxes; flipped at random, with noise."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.annotations = json.loads((root / "annotations.json").read_text(encoding="utf-8"))

    def __len__(self) -> int:
        return len(self.annotations)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, dict[str, Any]]:
        annotation = self.annotations[index]
        with Image.open(self.root / annotation["file"]) as opened:
            pixels = np.asarray(opened.convert("RGB"), np.float32) / 255
        boxes = np.array(annotation["boxes"], np.float32).reshape(-1, 4)
        if random.random() < 0.5:
            pixels = pixels[:, ::-1]
            boxes[:, [0, 2]] = pixels.shape[1] - boxes[:, [2, 0]]
        pixels = pixels + np.random.normal(0, 0.05, pixels.shape).astype(np.float32)  # users do this
        target = {"boxes": torch.from_numpy(boxes), "image_id": index, "file": annotation["file"]}
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1), target


def seed_worker(worker_id: int) -> None:
    """From torch's page on reproducibility."""
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)  # users do this
    random.seed(seed)


scenes = Scenes(folder)
generator = torch.Generator().manual_seed(5)
weights = [1.0 + len(annotation["boxes"]) for annotation in scenes.annotations]
loader = DataLoader(
    scenes,
    batch_size=4,
    sampler=WeightedRandomSampler(weights, 24, generator=generator),
    num_workers=num_workers,
    collate_fn=lambda samples: tuple(zip(*samples, strict=True)),
    worker_init_fn=seed_worker if num_workers else None,
    generator=generator,
    persistent_workers=num_workers > 0,
    pin_memory=False,
)
backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64, 4))
optimizer = torch.optim.SGD(backbone.parameters(), lr=1e-3)

losses = []
for _ in range(3):
    for images, targets in loader:
        found = torch.cat([backbone(image[None]) for image in images])
        wanted = torch.stack([target["boxes"].sum(0) / 32 for target in targets])
        loss = nn.functional.smooth_l1_loss(found, wanted) + 0.01 * sum(target["image_id"] for target in targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

print(json.dumps(losses))  # noqa: T201  # what the script is for
