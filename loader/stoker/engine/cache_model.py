"""Whether samples are better kept decoded or as they are: a pure model of rates.

After Seneca (FAST'26: the rate of a form of caching is that of its slowest resource, and the forms share the samples by
what fits) and HyCache (ATC'25: only what saves time is worth bytes). Seneca adds the rates of its parts; here their
times add up, for a stream in one order waits for both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

MIN_GAIN: Final = 1.1
"""Decoded samples are kept where the rate is expected to become so many times what it is; less is within the noise."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured. Bytes and seconds are means of one sample; seconds are of one thread's CPU.

    ``full_s`` is all ops in one go, ``suffix_s`` those behind the cache on what it gives. ``origin_bytes_s`` and
    ``place_bytes_s`` are rates of reading where the data lie and where the cache would. ``encoded_budget_bytes`` is
    room for samples as they are, read at the place's rate, in a cache that exists anyway.
    """

    num_samples: int
    num_threads: int
    encoded_bytes: float
    decoded_bytes: float
    full_s: float
    suffix_s: float
    origin_bytes_s: float
    place_bytes_s: float
    budget_bytes: float
    encoded_budget_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """``form`` and why: rates in samples a second, and the fraction of the samples that fits decoded."""

    form: Literal["encoded", "decoded"]
    encoded_rate: float
    decoded_rate: float
    fraction: float
    text: str


def decide(figures: Figures) -> Decision:
    """Return the form that gives the higher rate over an epoch in which the cache is full."""
    full_rate = _rate(figures.num_threads, figures.full_s)
    from_origin = min(full_rate, figures.origin_bytes_s / figures.encoded_bytes)
    from_encoded = min(full_rate, max(figures.place_bytes_s, figures.origin_bytes_s) / figures.encoded_bytes)
    from_decoded = min(
        _rate(figures.num_threads, figures.suffix_s), figures.place_bytes_s / max(figures.decoded_bytes, 1.0)
    )
    encoded_fraction = _fraction(figures.encoded_budget_bytes, figures.num_samples * figures.encoded_bytes)
    fraction = _fraction(figures.budget_bytes, figures.num_samples * figures.decoded_bytes)
    encoded = _together(encoded_fraction, from_encoded, from_origin)
    decoded = _together(fraction, from_decoded, from_origin)
    is_worth_it = decoded >= MIN_GAIN * encoded
    text = (
        f"decoded cache {'on' if is_worth_it else 'off'}: {decoded:,.0f} samples/s expected with it, {encoded:,.0f} "
        f"without. A sample takes {1e3 * figures.full_s:.2f} ms of CPU, {1e3 * figures.suffix_s:.2f} ms behind the "
        f"cache; it has {figures.encoded_bytes / 1e3:,.1f} KB as it is, {figures.decoded_bytes / 1e3:,.1f} KB decoded "
        f"(x {figures.decoded_bytes / figures.encoded_bytes:.2f}); {figures.num_threads} threads; the data come at "
        f"{figures.origin_bytes_s / 1e6:,.0f} MB/s, the cache at {figures.place_bytes_s / 1e6:,.0f} MB/s; "
        f"{100 * fraction:.0f} % of {figures.num_samples:,} samples fit {figures.budget_bytes / 1e9:,.1f} GB"
    )
    return Decision("decoded" if is_worth_it else "encoded", encoded, decoded, fraction, text)


def _rate(num_threads: int, seconds: float) -> float:
    return num_threads / seconds if seconds > 0 else math.inf


def _fraction(budget_bytes: float, all_bytes: float) -> float:
    return min(1.0, budget_bytes / all_bytes) if all_bytes > 0 else 1.0


def _together(fraction: float, cached: float, others: float) -> float:
    """The rate of a stream of which so much comes at one rate, the rest at another."""
    seconds = fraction / max(cached, 1e-9) + (1 - fraction) / max(others, 1e-9)
    return 1 / seconds if seconds > 0 else math.inf
