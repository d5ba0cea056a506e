"""Libraries that take a loader: Accelerate, Lightning, torchdata's callers; side by side with torch's loader."""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torchdata.stateful_dataloader import StatefulDataLoader

from support.side_by_side import assert_same, described, epochs, is_ours, under_test
from support.torch_datasets import Drawing, Numbers, Sharded

ours_only = pytest.mark.skipif(not is_ours(under_test()), reason="torch's loader has no state")


@pytest.fixture
def accelerator() -> Any:
    """One process on the CPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from accelerate import Accelerator  # type: ignore[import-untyped]

        return Accelerator(cpu=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("dataset", [Drawing(11), Sharded(11)], ids=["map", "iterable"])
def test_accelerate_prepare(num_workers: int, dataset: Any, accelerator: Any) -> None:
    """``Accelerator.prepare(loader)``, which builds a loader of its own from what ours says of itself."""
    shuffle = {"shuffle": True} if isinstance(dataset, Drawing) else {}

    def use(loader_class: Any) -> Any:
        prepared = accelerator.prepare(loader_class(dataset, batch_size=3, num_workers=num_workers, **shuffle))
        return len(prepared) if shuffle else None, epochs(prepared, 2)

    assert_same(use)


@pytest.mark.filterwarnings("ignore")
def test_accelerate_skips_batches(accelerator: Any) -> None:
    """``skip_first_batches``, on our loader and on a prepared one."""
    from accelerate import skip_first_batches

    def use(loader_class: Any) -> Any:
        loader = loader_class(Numbers(11), batch_size=2, num_workers=1)
        return epochs(skip_first_batches(loader, 2)), epochs(skip_first_batches(accelerator.prepare(loader), 3))

    assert_same(use)


@pytest.mark.filterwarnings("ignore")
def test_accelerate_shards_over_processes() -> None:
    """``prepare_data_loader`` for each of two processes: together they have each batch once."""
    from accelerate.data_loader import prepare_data_loader  # type: ignore[import-untyped]

    def use(loader_class: Any) -> Any:
        loader = loader_class(Numbers(12), batch_size=2, num_workers=1)
        return [
            epochs(prepare_data_loader(loader, num_processes=2, process_index=rank, put_on_device=False))
            for rank in range(2)
        ]

    assert_same(use)


# -- Lightning ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def lightning(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The library, told to be silent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import logging

        import lightning

        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        yield lightning


def fit(lightning: Any, loader: Any, folder: Path, **settings: Any) -> tuple[Any, Any]:
    """Train a tiny model; returns it and its trainer."""

    class Model(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(1, 1)
            self.seen: list[list[int]] = []

        def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
            self.seen.append(batch["index"].tolist())
            return self.layer(batch["torch"][:, :1]).mean()  # type: ignore[no-any-return]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    checkpoint = settings.pop("ckpt_path", None)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=bool(settings.get("callbacks")),
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **settings,
    )
    model = Model()
    with contextlib.redirect_stderr(io.StringIO()):
        trainer.fit(model, loader, ckpt_path=checkpoint)
    return model, trainer


@pytest.mark.filterwarnings("ignore")
def test_lightning_fits(lightning: Any, tmp_path: Path) -> None:
    """The batches that a Trainer takes, with its own sampler for prediction as well."""

    def use(loader_class: Any) -> Any:
        loader = loader_class(Drawing(10), batch_size=3, shuffle=True, num_workers=2)
        model, trainer = fit(lightning, loader, tmp_path, max_epochs=2)
        return model.seen, trainer.num_training_batches

    assert_same(use)


@ours_only
@pytest.mark.filterwarnings("ignore")
def test_lightning_goes_on_in_the_middle_of_an_epoch(lightning: Any, tmp_path: Path) -> None:
    """A Trainer saves our loader's state with its checkpoint, and a new one goes on at the next batch."""

    def loader() -> Any:
        generator = torch.Generator().manual_seed(3)
        return under_test()(Drawing(20), batch_size=2, shuffle=True, num_workers=2, generator=generator)

    from lightning.pytorch.callbacks import ModelCheckpoint

    middle = ModelCheckpoint(dirpath=tmp_path, filename="{step}", every_n_train_steps=4, save_top_k=-1)
    whole, _ = fit(lightning, loader(), tmp_path, max_epochs=2, callbacks=[middle])
    rest, _ = fit(lightning, loader(), tmp_path, max_epochs=2, ckpt_path=tmp_path / "step=4.ckpt")
    assert len(whole.seen) == 20
    assert rest.seen == whole.seen[4:]


# -- torchdata ---------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # which torchdata 0.11 calls
@pytest.mark.parametrize("num_workers", [0, 2])
def test_stateful_dataloader_gives_the_same(num_workers: int) -> None:
    """torchdata's StatefulDataLoader, which draws its seed elsewhere, gives the same batches in order."""
    ours = under_test()(Numbers(11), batch_size=3, num_workers=num_workers)
    theirs: Any = StatefulDataLoader(Numbers(11), batch_size=3, num_workers=num_workers)
    assert described(epochs(ours, 2)) == described(epochs(theirs, 2))


@ours_only
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # which torchdata 0.11 calls
@pytest.mark.parametrize("num_workers", [0, 2])
def test_what_callers_of_stateful_dataloader_do(num_workers: int) -> None:
    """Save the state after some steps, load it into a new loader, go on: the same calls, the same rest."""

    def loader(loader_class: Any) -> Any:
        return loader_class(Numbers(20), batch_size=3, num_workers=num_workers)

    rests = []
    for loader_class in (StatefulDataLoader, under_test()):
        first = loader(loader_class)
        taken = list(itertools.islice(first, 3))
        state = copy.deepcopy(first.state_dict())
        second = loader(loader_class)
        second.load_state_dict(state)
        rests.append(described([taken, list(second), list(second)]))
    assert rests[0] == rests[1]
    json.dumps(under_test()(Numbers(20)).state_dict())
