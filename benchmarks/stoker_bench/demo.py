"""The command ``stoker demo``."""

from __future__ import annotations

import importlib.util
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from stoker_bench.datasets import MadeShards

NUM_SHARDS = 4
SHEET_IMAGES = 32


@dataclass(frozen=True, slots=True)
class LoopResult:
    """What the training-like loop saw; the waits are the time spent in ``next()``."""

    num_steps: int
    num_images: int
    elapsed_s: float
    waited_s: float
    right_percent: float
    stats: dict[str, Any]

    @property
    def images_per_s(self) -> float:
        return self.num_images / self.elapsed_s

    @property
    def waited_share(self) -> float:
        return self.waited_s / self.elapsed_s


def demo(
    steps: Annotated[int, typer.Option(min=2, help="Training steps.")] = 60,
    batch_size: Annotated[int, typer.Option(min=1)] = 64,
    step_ms: Annotated[float, typer.Option(min=0, help="How long a step of the pretended accelerator takes.")] = 40.0,
    pictures: Annotated[int, typer.Option(min=8, help="How many pictures to cut from the photographs.")] = 512,
    sheet: Annotated[
        Path | None, typer.Option(help="Where the contact sheet goes; a temporary file if not given.")
    ] = None,
) -> None:
    """Make a few shards of photographs and run a training-like loop over them."""
    from rich.console import Console

    from stoker_bench.datasets import PhotoShards

    console = Console(highlight=False)
    sheet = sheet or Path(tempfile.mkdtemp(prefix="stoker-demo-")) / "batch.png"
    with tempfile.TemporaryDirectory(prefix="stoker-demo-") as folder:
        made = _make(PhotoShards(NUM_SHARDS, -(-pictures // NUM_SHARDS)), Path(folder), console)
        result = _train(made, steps, min(batch_size, made.num_rows), step_ms / 1e3, sheet, console)
    console.print(f"[bold]{result.images_per_s:,.0f} images/s[/], {100 * result.waited_share:.1f} % of the time waited")
    console.print(f"the toy model names the right photograph for {result.right_percent:.0f} % of the last batch")
    console.print(f"one augmented batch: {sheet}", soft_wrap=True)
    console.print(verdict(result), soft_wrap=True)
    if importlib.util.find_spec("torch") is None:
        text = "Without PyTorch, Pillow resizes the pictures, which takes longer; stoker[torch] brings it."
        console.print(text, markup=False, soft_wrap=True)


def verdict(result: LoopResult) -> str:
    """Say in one sentence what limits the rate."""
    decoded = f"one core decodes {_per_core(result.stats):,.0f} images/s"
    waited = f"the loop waited {100 * result.waited_share:.0f} % of the time"
    match result.stats["limited_by"]:
        case "trainer":
            return f"The training step limits: {waited}, so a faster loader would change nothing."
        case "decode":
            return f"Decoding limits: {waited} for pictures to be decoded; {decoded}, so more cores would help."
        case _:
            return f"Reading limits: {waited} for bytes from storage."


def _per_core(stats: dict[str, Any]) -> float:
    decode_s: float = stats["decode_s"]
    return stats["samples"] / decode_s if decode_s else float("nan")


def _make(wanted: Any, folder: Path, console: Console) -> MadeShards:
    from stoker_bench import datasets, photographs

    photographs.shipped_paths()  # what is missing is said before the bar begins
    with _bar(console) as progress:
        task = progress.add_task("cutting photographs", total=wanted.num_rows, note="")
        return datasets.make(wanted, folder, progress=lambda rows: progress.advance(task, rows))


def _train(
    made: MadeShards, num_steps: int, batch_size: int, step_s: float, sheet: Path, console: Console
) -> LoopResult:
    import stoker
    from stoker_bench import contact_sheet
    from stoker_bench.rates import endless
    from stoker_bench.toy_model import SoftmaxRegression

    pipeline = stoker.Pipeline.preset("imagenet_train", made.pattern, batch_size=batch_size)
    model = SoftmaxRegression(made.num_classes)
    waited_s, right = 0.0, []
    with stoker.DataLoader(pipeline, output="numpy") as loader, _bar(console) as progress:
        task = progress.add_task("training", total=num_steps, note="")
        batches = endless(loader)
        contact_sheet.write(sheet, next(batches)["image"][:SHEET_IMAGES], num_columns=8)
        started = time.perf_counter()
        for step, (wait_s, batch) in enumerate(_timed(batches, num_steps), start=1):
            waited_s += wait_s
            right.append(_step(model, batch, step_s))
            elapsed_s = time.perf_counter() - started
            note = f"{step * batch_size / elapsed_s:,.0f}/s, waited {100 * waited_s / elapsed_s:.0f} %"
            progress.update(task, advance=1, note=f"{note}, {right[-1]:.0f} % right")
        elapsed_s = time.perf_counter() - started
        return LoopResult(num_steps, num_steps * batch_size, elapsed_s, waited_s, right[-1], loader.stats())


def _timed(batches: Iterator[dict[str, Any]], num_steps: int) -> Iterator[tuple[float, dict[str, Any]]]:
    for _ in range(num_steps):
        before = time.perf_counter()
        batch = next(batches)
        yield time.perf_counter() - before, batch


def _step(model: Any, batch: dict[str, Any], step_s: float) -> float:
    """Train the toy, then sleep for what is left of the step: an accelerator's work leaves the cores alone."""
    started = time.perf_counter()
    right: float = model.step(batch["image"], batch["cls"])
    time.sleep(max(0.0, step_s - (time.perf_counter() - started)))
    return right


def _bar(console: Console) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description:<19}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
    )
    return Progress(*columns, console=console)
