"""Train with Lightning and a LightningDataModule: ``lightning_module.py [NUM_WORKERS]``."""

import json
import logging
import sys
import warnings
from typing import Any

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

num_workers = int(sys.argv[1]) if len(sys.argv) > 1 else 2

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Rings(Dataset):  # type: ignore[type-arg]
    """Points of two rings, with noise drawn for each."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        angle, ring = torch.tensor(index * 0.7), index % 2
        point = torch.stack([angle.cos(), angle.sin()]) * (1 + ring) + 0.1 * torch.randn(2)
        return {"point": point, "ring": ring}


class RingData(lightning.LightningDataModule):
    """Train and validation parts."""

    def setup(self, stage: str) -> None:
        """Split."""
        self.train, self.val = random_split(Rings(60), [48, 12], torch.Generator().manual_seed(9))

    def train_dataloader(self) -> Any:
        """Shuffled."""
        return DataLoader(self.train, batch_size=8, shuffle=True, num_workers=num_workers)

    def val_dataloader(self) -> Any:
        """In order."""
        return DataLoader(self.val, batch_size=5, num_workers=num_workers, persistent_workers=num_workers > 0)


class Classifier(lightning.LightningModule):
    """A tiny one, which notes its losses."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
        self.losses: list[float] = []

    def loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Of one batch."""
        loss = nn.functional.cross_entropy(self.layers(batch["point"]), batch["ring"])
        self.losses.append(loss.item())
        return loss

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        """One step."""
        return self.loss(batch)

    def validation_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> None:
        """One step."""
        self.loss(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=0.02)


lightning.seed_everything(4, workers=True, verbose=False)
torch.set_num_threads(1)
model = Classifier()
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=1,
    max_epochs=3,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    num_sanity_val_steps=1,
)
trainer.fit(model, datamodule=RingData())

print(json.dumps(model.losses))  # noqa: T201  # what the script is for
