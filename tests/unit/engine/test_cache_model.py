"""Which form the model chooses, on machines and data like those of Seneca's paper."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker.engine.cache_model import Figures, decide

GB = 1e9

IMAGENET = Figures(
    num_samples=1_281_167,
    num_threads=32,
    encoded_bytes=115_000,
    decoded_bytes=5.12 * 115_000,
    full_s=32 / 3_432,  # T of decode and augmentation, their 4 V100 at AWS
    suffix_s=32 / 6_520,  # T of augmentation
    origin_bytes_s=0.5 * GB,
    place_bytes_s=6 * GB,
    budget_bytes=1_000 * GB,
)
IMAGENET_22K = replace(IMAGENET, num_samples=14_000_000, encoded_bytes=100_000, decoded_bytes=512_000)


def test_a_data_set_that_fits_decoded_is_kept_so_where_decoding_limits() -> None:
    decision = decide(IMAGENET)
    assert decision.form == "decoded"
    assert decision.fraction == 1
    assert decision.encoded_rate == pytest.approx(3_432)
    assert decision.decoded_rate == pytest.approx(6_520)


def test_a_huge_data_set_on_slow_storage_is_kept_as_it_is() -> None:
    """ImageNet-22K is always all encoded: decoded, a fifth as many samples would be spared the slow store."""
    slow = replace(IMAGENET_22K, origin_bytes_s=0.1 * GB, budget_bytes=400 * GB, encoded_budget_bytes=400 * GB)
    assert decide(slow).form == "encoded"


def test_a_place_too_slow_for_decoded_bytes_is_not_used() -> None:
    assert decide(replace(IMAGENET, place_bytes_s=0.5 * GB)).form == "encoded"


def test_a_cheap_decode_is_not_worth_it() -> None:
    assert decide(replace(IMAGENET, suffix_s=0.95 * IMAGENET.full_s)).form == "encoded"


def test_slow_storage_is_spared_by_either_form() -> None:
    """The cache for samples as they are would do, but there is none."""
    slow = replace(IMAGENET, origin_bytes_s=0.1 * GB, suffix_s=IMAGENET.full_s)
    assert decide(slow).form == "decoded"
    assert decide(replace(slow, encoded_budget_bytes=1_000 * GB)).form == "encoded"


def test_a_part_that_fits_makes_a_part_faster() -> None:
    decision = decide(replace(IMAGENET, budget_bytes=IMAGENET.num_samples * IMAGENET.decoded_bytes / 2))
    assert decision.fraction == pytest.approx(0.5)
    assert decision.decoded_rate == pytest.approx(1 / (0.5 / 6_520 + 0.5 / 3_432))


def test_no_room_is_no_cache() -> None:
    assert decide(replace(IMAGENET, budget_bytes=0)).form == "encoded"


def test_the_text_says_what_was_decided_and_the_figures() -> None:
    text = decide(IMAGENET).text
    for part in ("decoded cache on", "3,432", "6,520", "115.0 KB", "x 5.12", "100 % of 1,281,167", "32 threads"):
        assert part in text


def test_ops_that_take_no_time_are_no_division_by_zero() -> None:
    assert decide(replace(IMAGENET, full_s=0.0, suffix_s=0.0, decoded_bytes=0.0)).text
