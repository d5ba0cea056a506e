"""Train on several ranks, each with its share of the samples: ``torchrun --nproc-per-node 2 distributed.py``."""

import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

num_workers = int(sys.argv[1]) if len(sys.argv) > 1 else 2


class Points(Dataset):  # type: ignore[type-arg]
    """Noisy points of a line."""

    def __init__(self, count: int) -> None:
        self.x = torch.linspace(-1, 1, count)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.x[index : index + 1]
        return x, 3 * x - 1 + 0.1 * torch.randn(1)


def main() -> None:
    """One rank."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3 + rank)
    torch.set_num_threads(1)
    dataset = Points(42)
    sampler: Any = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler, num_workers=num_workers, persistent_workers=True)
    model = DistributedDataParallel(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total = loss.detach().clone()
            dist.all_reduce(total)
            losses.append(total.item())
    if rank == 0:
        print(json.dumps(losses), flush=True)  # noqa: T201  # what the script is for
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
