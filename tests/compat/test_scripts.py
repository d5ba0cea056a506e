"""Five training scripts in the public style give torch's loss curves when only their import line changes."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from support import programs
from support.side_by_side import NAME_UNDER_TEST

pytestmark = pytest.mark.timeout(600)

SCRIPTS = Path(__file__).parent / "scripts"
DEADLINE_S = 240.0  # on cores that are busy with other tests
THEIRS = "from torch.utils.data import DataLoader"
OURS = "from {} import {}".format(*NAME_UNDER_TEST.rsplit(".", 1))
WORDS = ["coal", "fire", "grate", "ash", "steam", "water", "valve", "rail"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures in two classes, texts, and pictures with boxes."""
    root = tmp_path_factory.mktemp("scripts")
    random = np.random.default_rng(8)
    annotations = []
    for index in range(20):
        height, width = random.integers(30, 60, 2)
        pixels = np.linspace(0, 255, height * width * 3).reshape(height, width, 3) + random.normal(
            0, 30, (height, width, 3)
        )
        picture = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
        kind = root / "pictures" / ("cat", "dog")[index % 2]
        kind.mkdir(parents=True, exist_ok=True)
        picture.save(kind / f"{index}.jpg")
        (root / "scenes").mkdir(exist_ok=True)
        picture.save(root / "scenes" / f"{index}.png")
        boxes = random.integers(0, 30, (index % 4, 4)).tolist()
        annotations.append({"file": f"{index}.png", "boxes": boxes})
    (root / "scenes" / "annotations.json").write_text(json.dumps(annotations), encoding="utf-8")
    (root / "texts").mkdir()
    for index in range(5):
        lines = [f"{random.integers(3)} {' '.join(random.choice(WORDS, 3 + line % 5))}\n" for line in range(11 + index)]
        (root / "texts" / f"{index}.txt").write_text("".join(lines), encoding="utf-8")
    return root


def losses(
    name: str, import_line: str, folder: Path, arguments: list[str], launcher: tuple[str, ...] = ()
) -> list[float]:
    """Run a script with this import line to its end, as a process of its own; its loss curve."""
    script = written(name, import_line, folder)
    ended = subprocess.run(
        [sys.executable, *launcher, str(script), *arguments],
        env={**programs.environment(), "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    curve: list[float] = json.loads(ended.stdout.splitlines()[-1])
    return curve


def written(name: str, import_line: str, folder: Path) -> Path:
    """The script with this import line."""
    text = (SCRIPTS / f"{name}.py").read_text(encoding="utf-8")
    script = folder / f"{name}_{'torch' if import_line == THEIRS else 'ours'}.py"
    script.write_text("\n".join(imported(line, import_line) for line in text.splitlines()) + "\n", encoding="utf-8")
    return script


def imported(line: str, import_line: str) -> str:
    """The one line that differs; what else it imports from torch still comes from torch."""
    if not line.startswith(THEIRS):
        return line
    others = line.removeprefix(THEIRS).removeprefix(", ")
    return f"{import_line}\nfrom torch.utils.data import {others}" if others else import_line


def assert_same_losses(name: str, folder: Path, *arguments: str, launcher: tuple[str, ...] = (), count: int) -> None:
    """The curve has so many steps, and is torch's to the last bit."""
    theirs = losses(name, THEIRS, folder, [*arguments], launcher)
    assert len(theirs) == count
    assert len(set(theirs)) > count / 2
    assert losses(name, OURS, folder, [*arguments], launcher) == theirs


def test_image_folder(folder: Path) -> None:
    """Map-style: JPEG files, torchvision's transforms with a lambda among them, drop_last; no main guard."""
    assert_same_losses("image_folder", folder, str(folder / "pictures"), count=6)


def test_text_stream(folder: Path) -> None:
    """Iterable: files shared out over the workers, a shuffle buffer, padding; no main guard."""
    assert_same_losses("text_stream", folder, str(folder / "texts"), count=36)


def test_detection(folder: Path) -> None:
    """A different number of boxes in each picture: a lambda to collate, a weighted sampler, kept workers."""
    assert_same_losses("detection", folder, str(folder / "scenes"), count=18)


def test_distributed(folder: Path) -> None:
    """Two ranks over gloo, DistributedSampler and set_epoch."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    assert_same_losses("distributed", folder, launcher=launcher, count=18)


def test_lightning(folder: Path) -> None:
    """A LightningDataModule with training and validation loaders."""
    assert_same_losses("lightning_module", folder, count=28)


@pytest.mark.parametrize(
    "name, part", [("image_folder", "pictures"), ("text_stream", "texts"), ("detection", "scenes")]
)
def test_without_workers(
    name: str, part: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same with num_workers=0, here in the test's own process."""
    num_threads = torch.get_num_threads()
    curves = []
    for import_line in (THEIRS, OURS):
        script = str(written(name, import_line, folder))
        monkeypatch.setattr(sys, "argv", [script, str(folder / part), "0"])
        runpy.run_path(script, run_name="__main__")
        curves.append(capsys.readouterr().out)
    torch.set_num_threads(num_threads)
    assert curves[0] == curves[1]
    assert len(json.loads(curves[0])) > 3
