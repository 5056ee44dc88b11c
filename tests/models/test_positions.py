"""Rotary positions in seconds: known angles, and products that depend on time differences alone."""

from __future__ import annotations

import math

import pytest
import torch

from avfusion.models.positions import frame_times_s, rotate


def test_a_pair_turns_once_in_its_period() -> None:
    x = torch.tensor([1.0, 2.0, 3.0, 4.0]).expand(1, 1, 3, 4)  # pairs (1, 3) with 0.04 s and (2, 4) with 8 s
    turned = rotate(x, torch.tensor([0.0, 0.01, 2.0]))
    assert torch.equal(turned[0, 0, 0], x[0, 0, 0])
    # A quarter of 0.04 s takes (1, 3) to (-3, 1); a quarter of 8 s takes (2, 4) to (-4, 2).
    torch.testing.assert_close(turned[0, 0, 1, [0, 2]], torch.tensor([-3.0, 1.0]))
    angle = 2 * math.pi * 0.01 / 8
    slow = [2 * math.cos(angle) - 4 * math.sin(angle), 2 * math.sin(angle) + 4 * math.cos(angle)]
    torch.testing.assert_close(turned[0, 0, 1, [1, 3]], torch.tensor(slow))
    torch.testing.assert_close(turned[0, 0, 2], torch.tensor([1.0, -4.0, 3.0, 2.0]), rtol=0, atol=1e-5)


def test_periods_are_geometric_from_40_ms_to_8_s() -> None:
    time_s = 0.001
    ones = torch.cat([torch.ones(5), torch.zeros(5)]).double().expand(1, 1, 1, 10)
    turned = rotate(ones, torch.tensor([time_s], dtype=torch.float64))[0, 0, 0]
    periods_s = 2 * math.pi * time_s / torch.atan2(turned[5:], turned[:5])
    expected = torch.tensor([0.04 * 200 ** (p / 4) for p in range(5)], dtype=torch.float64)
    torch.testing.assert_close(periods_s, expected)


def test_a_single_pair_gets_the_middle_period() -> None:
    turned = rotate(torch.tensor([1.0, 0.0]).expand(1, 1, 1, 2), torch.tensor([math.sqrt(0.04 * 8.0) / 4]))
    torch.testing.assert_close(turned[0, 0, 0], torch.tensor([0.0, 1.0]), rtol=0, atol=1e-5)


def test_products_do_not_move_when_both_times_shift_by_an_hour() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 3, 25, 32), torch.randn(2, 3, 100, 32)
    query_s = frame_times_s(25, 25.0, query.device)
    key_s = frame_times_s(100, 100.0, key.device)
    here = rotate(query, query_s) @ rotate(key, key_s).mT
    later = rotate(query, query_s + 3600) @ rotate(key, key_s + 3600).mT
    torch.testing.assert_close(here, later, rtol=0, atol=1e-5)
    shifted = rotate(query, query_s) @ rotate(key, key_s + 0.1).mT
    assert (here - shifted).abs().max() > 1


def test_two_rates_meet_on_one_clock() -> None:
    x = torch.randn(1, 1, 1, 16).expand(1, 1, 40, 16)
    video = rotate(x[:, :, :10], frame_times_s(10, 25.0, x.device))
    audio = rotate(x, frame_times_s(40, 100.0, x.device))
    torch.testing.assert_close(video, audio[:, :, ::4])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dtype_follows_the_input(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 2, 30, 8)
    times_s = torch.arange(30) / 25 + 1000
    turned = rotate(x.to(dtype), times_s)
    assert turned.dtype == dtype
    torch.testing.assert_close(turned.float(), rotate(x, times_s), rtol=0, atol=0.02)


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(ValueError, match="width per head is 5, expected even"):
        rotate(torch.zeros(1, 1, 2, 5), torch.zeros(2))
    with pytest.raises(ValueError, match=r"shape \(3,\), expected \(2,\)"):
        rotate(torch.zeros(1, 1, 2, 4), torch.zeros(3))
