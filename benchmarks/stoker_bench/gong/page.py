"""The figures as a Markdown page."""

from __future__ import annotations

from typing import Any

from stoker_bench.gpu.page import spread, step_cells

STORAGES = {"cold": "disk, pages dropped", "warm": "page cache", "store": "store with latency"}
LAYOUTS = {"raw": "raw files", "shards": "shards"}
PLACEMENTS = {"cpu": "CPU", "dali-cpu": "DALI on the CPU (stand-in)", "mixed": "CPU + GPU"}


def markdown(report: dict[str, Any]) -> str:
    """Return one table, and one of the models."""
    found, options, trainer = report["machine"], report["options"], report["trainer"]
    images = report["images"]
    where = f"{found['processor']}, {found['cores']} cores, Python {found['python']}; GPU: {report['device']}."
    how = f"{options['num_rounds']} rounds of {options['num_batches']} batches of {options['batch_size']}"
    read = f"{images['rows']:,} pictures; store: the emulated profile `{options['profile']}` on loopback."
    waits = (
        f"The trainer takes {trainer['batch_size']} images in steps of {1000 * trainer['step_s']:.0f} ms: "
        f"{trainer['load']:.1f} of what the CPU makes of shards from the page cache."
    )
    lines = [
        "## Raw files or shards, CPU or CPU and GPU",
        "",
        f"{where} {how}; median (smallest–largest). {read} {waits}",
        "",
        "| read from | layout | made on | images/s | over raw, CPU | KB/image | requests/1,000 | waits, % | p99, ms |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_row(column, report["reads"]) for column in report["columns"]),
        "",
        *_models(report["models"]),
    ]
    return "\n".join(lines) + "\n"


def _row(column: dict[str, Any], reads: dict[str, dict[str, float]]) -> str:
    begin = f"| {STORAGES[column['storage']]} | {LAYOUTS[column['layout']]} | {PLACEMENTS[column['placement']]}"
    if "missing" in column:
        return f"{begin} | {column['missing'].partition(':')[0]} | | | | | |"
    waited = column["waited"]
    storage = "warm" if column["storage"] == "cold" else column["storage"]  # whose pages are dropped: the same reads
    read = reads[f"{storage}/{column['layout']}"]
    cells = [
        spread(column["taken"]["images_per_s"], 0),
        f"**{spread(column['ratio'], 2)}**",
        f"{read['bytes_per_image'] / 1e3:.1f}",
        f"{1000 * read['requests_per_image']:,.0f}",
        spread(waited["share"], 1, 100),
        spread(waited["p99_s"], 1, 1000),
    ]
    return " | ".join([begin, *cells]) + " |"


def _models(found: dict[str, Any]) -> list[str]:
    title = "A model that trains on the same GPU, images from the page cache"
    if "missing" in found:
        return [f"{title}: {found['missing']}."]
    lines = [
        f"{title}:",
        "",
        "| model | pictures from | step on the GPU, ms | over alone | images/s |",
        "|---|---|---|---|---|",
    ]
    for name, ways in found.items():
        rows = {"": ways} if "failed" in ways else {_way(way): figures for way, figures in ways.items()}
        lines += [f"| {name} | {way} | {step_cells(figures)} |" for way, figures in rows.items()]
    return lines


def _way(way: str) -> str:
    layout, _, placement = way.partition("/")
    return f"{LAYOUTS[layout]}, {PLACEMENTS[placement]}" if placement else "nobody: the same batch again"
