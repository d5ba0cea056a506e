"""What a script sets for its whole process, and expects in its workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import logging, sys
import numpy as np
import torch
from PIL import Image, ImageFile
from stoker.compat import DataLoader

class Seen(torch.utils.data.Dataset):
    def __len__(self):
        return 1
    def __getitem__(self, index):
        logging.getLogger("mine").info("said by a worker")
        return {
            "dtype": str(torch.get_default_dtype()),
            "gradients": torch.is_grad_enabled(),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "numpy": np.geterr()["divide"],
            "pillow": (ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS),
            "recursion": sys.getrecursionlimit(),
        }

loader = DataLoader(Seen(), batch_size=None, num_workers=1)
list(loader)
logging.basicConfig(level=logging.INFO, format="mine: %(message)s")
torch.set_default_dtype(torch.float64)
torch.set_grad_enabled(False)
torch.use_deterministic_algorithms(True, warn_only=True)
np.seterr(divide="raise")
ImageFile.LOAD_TRUNCATED_IMAGES = True
Image.MAX_IMAGE_PIXELS = None
sys.setrecursionlimit(5555)
print(list(loader)[0])
"""


def test_workers_have_the_trainers_settings_of_the_moment(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=100, check=True)
    assert ran.stdout.strip() == str(
        {
            "dtype": "torch.float64",
            "gradients": False,
            "deterministic": True,
            "numpy": "raise",
            "pillow": [True, None],
            "recursion": 5555,
        }
    )
    assert ran.stderr.count("mine: said by a worker") == 1
