"""Train a small convolutional net on a folder of pictures: ``image_folder.py FOLDER [NUM_WORKERS]``.

A script as people write them: everything at module level, no ``if __name__ == "__main__"``.
"""

import json
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

folder = sys.argv[1]
num_workers = int(sys.argv[2]) if len(sys.argv) > 2 else 2

torch.manual_seed(0)
torch.set_num_threads(1)

transform = transforms.Compose(
    [
        transforms.RandomResizedCrop(24),
        transforms.RandomHorizontalFlip(),
        transforms.ColorJitter(0.4, 0.4, 0.4),
        transforms.ToTensor(),
        transforms.Lambda(lambda image: image - 0.5),
    ]
)
train_set = ImageFolder(folder, transform)
train_loader = DataLoader(train_set, batch_size=8, shuffle=True, num_workers=num_workers, drop_last=True)

model = nn.Sequential(nn.Conv2d(3, 8, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(800, len(train_set.classes)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
criterion = nn.CrossEntropyLoss()

losses = []
for _ in range(3):
    for images, targets in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(images), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

print(json.dumps(losses))  # noqa: T201  # what the script is for
