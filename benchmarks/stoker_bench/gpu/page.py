"""The figures as a Markdown page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Found = dict[str, Any]

_CELL = 300


def markdown(report: Found) -> str:
    """Return a section for each part that was tried."""
    shown: dict[str, tuple[str, Callable[[Found], list[str]]]] = {
        "machine": ("Machine", _machine),
        "tests": ("tests/gpu", _tests),
        "selfcheck": ("stoker selfcheck", lambda found: ["```", *found["lines"], "```"]),
        "rates": ("In the trainer", _rates),
        "service": ("Through a worker on the same host", _rates),
        "step": ("A ResNet-50 step beside it", _steps),
    }
    lines = ["# On a GPU", "", f"Device: {report['device']}."]
    for name, (title, page) in shown.items():
        if name in report:
            lines += ["", f"## {title}", "", *_section(report[name], page)]
    return "\n".join(lines) + "\n"


def _section(found: Found, page: Callable[[Found], list[str]]) -> list[str]:
    begin = [f"Failed: {cell(found['failed'])}.", ""] if "failed" in found else []
    if set(found) == {"failed"}:
        return begin[:1]
    if set(found) == {"missing"}:
        return [f"Left out: {found['missing']}."]
    return begin + page(found)


def _machine(found: Found) -> list[str]:
    gpu = found["gpu"]
    packages = ", ".join(f"{name} {version}" for name, version in {**found["packages"], **gpu["packages"]}.items())
    lines = [f"{found['processor']}, {found['cores']} cores, {found['system']}, Python {found['python']}; {packages}."]
    if "missing" in gpu:
        return [*lines, "", f"GPU: {gpu['missing']}."]
    memory = f"{gpu['memory_bytes'] / 2**30:.0f} GiB, {gpu['num_processors']} multiprocessors"
    return [*lines, "", f"GPU: {gpu['name']}, {memory}, driver {gpu['driver']}, CUDA {gpu['cuda']}."]


def _tests(found: Found) -> list[str]:
    counts = ", ".join(f"{number} {word}" for word, number in found["counts"].items())
    return [f"{counts or 'none were run'}.", "", *(f"- {line}" for line in found["lines"])]


def _rates(found: Found) -> list[str]:
    how = f"{found['num_rounds']} rounds of {found['num_batches']} batches of {found['batch_size']}"
    first = next(iter(found["titles"].values()))
    return [
        f"{how}; median (smallest–largest).",
        "",
        f"| | images/s | over {first} | copies to the GPU, a batch | MB copied, a batch | GPU memory, MiB |",
        "|---|---|---|---|---|---|",
        *(f"| {title} | {_rate(name, found)} |" for name, title in found["titles"].items()),
    ]


def _rate(name: str, found: Found) -> str:
    if name in found["missing"]:
        return f"{cell(found['missing'][name])} | | | | "
    taken, ratio = found["taken"][name], found["ratios"].get(name)
    cells = [
        spread(taken["images_per_s"], 0),
        f"**{spread(ratio, 2)}**" if ratio else "",
        _optional(taken, "copies_per_batch", 1, 1),
        _optional(taken, "copied_bytes_per_batch", 1e-6, 1),
        _optional(taken, "gpu_bytes", 2**-20, 0),
    ]
    return " | ".join(cells)


def _steps(found: Found) -> list[str]:
    options, titles = found["options"], found["titles"]
    rows = [f"| {titles.get(name, name)} | {step_cells(figures)} |" for name, figures in found["steps"].items()]
    return [
        f"Batches of {options['batch_size']}, bfloat16, channels last, {options['num_steps']} steps a round.",
        "",
        "| pictures from | step on the GPU, ms | over alone | images/s |",
        "|---|---|---|---|",
        *rows,
    ]


def step_cells(figures: Found) -> str:
    """A step's time, how much slower it is than alone, and images per second; or why there are none."""
    if "failed" in figures:
        return f"{cell(figures['failed'])} | | "
    slower = f"**{spread(figures['slower'], 2)}**" if "slower" in figures else ""
    return f"{spread(figures['step_s'], 1, 1000)} | {slower} | {spread(figures['images_per_s'], 0)}"


def cell(text: str) -> str:
    """A text as it may stand in a table, on one line."""
    return " ".join(text.replace("|", "/").split())[:_CELL]


def spread(found: dict[str, float], digits: int, factor: float = 1.0) -> str:
    """A median with the smallest and the largest value."""
    low, median, high = (f"{factor * found[name]:,.{digits}f}" for name in ("low", "median", "high"))
    return f"{median} ({low}–{high})"


def _optional(taken: Found, name: str, factor: float, digits: int) -> str:
    return f"{factor * taken[name]['median']:,.{digits}f}" if name in taken else ""
