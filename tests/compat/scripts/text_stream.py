"""Train a bag-of-words model on lines of files that the workers share out: ``text_stream.py FOLDER [NUM_WORKERS]``."""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

folder = Path(sys.argv[1])
num_workers = int(sys.argv[2]) if len(sys.argv) > 2 else 2
VOCABULARY = 500

random.seed(1)
torch.manual_seed(1)
torch.set_num_threads(1)


class Lines(IterableDataset):  # type: ignore[type-arg]
    """Lines of the files of this worker, mixed in a small buffer, as numbers."""

    def __init__(self, files: list[Path], buffer_size: int = 16) -> None:
        self.files = files
        self.buffer_size = buffer_size

    def lines(self) -> Iterator[str]:
        """This worker's."""
        info = get_worker_info()
        mine = self.files if info is None else self.files[info.id :: info.num_workers]
        for file in mine:
            with file.open(encoding="utf-8") as opened:
                yield from opened

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        buffer: list[str] = []
        for line in self.lines():
            buffer.append(line)
            if len(buffer) == self.buffer_size:
                yield self.numbers(buffer.pop(random.randrange(len(buffer))))
        random.shuffle(buffer)
        for line in buffer:
            yield self.numbers(line)

    def numbers(self, line: str) -> tuple[torch.Tensor, int]:
        """Tokens by a simple hash, a word dropped now and then; the first word is the label."""
        label, *words = line.split()
        kept = [word for word in words if torch.rand(()) > 0.1] or words[:1]
        return torch.tensor([sum(map(ord, word)) % VOCABULARY for word in kept]), int(label)


def collate(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Padded to the longest."""
    tokens, labels = zip(*samples, strict=True)
    lengths = torch.tensor([len(each) for each in tokens])
    return pad_sequence(list(tokens), batch_first=True), lengths, torch.tensor(labels)


loader = DataLoader(Lines(sorted(folder.glob("*.txt"))), batch_size=6, num_workers=num_workers, collate_fn=collate)
embedding, head = nn.Embedding(VOCABULARY, 16), nn.Linear(16, 3)
optimizer = torch.optim.AdamW([*embedding.parameters(), *head.parameters()], lr=1e-2)

losses = []
for _ in range(3):
    for tokens, lengths, labels in loader:
        mask = torch.arange(tokens.shape[1])[None, :] < lengths[:, None]
        mean = (embedding(tokens) * mask[..., None]).sum(1) / lengths[:, None]
        loss = nn.functional.cross_entropy(head(mean), labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())

print(json.dumps(losses))  # noqa: T201  # what the script is for
