"""Facts about the norms of values: hand-worked, and what they say about the output."""

from __future__ import annotations

import math

import torch

from avfusion.models.attention import MultiHeadCrossAttention


def test_value_norms_by_hand() -> None:
    # Two heads of one channel. Values: v = (2 c, 3 c + 1); head 0 is written as (1, 1), head 1 as (0, -2).
    module = MultiHeadCrossAttention(2, 2, context_dim=1)
    with torch.no_grad():
        module.key_value.weight.copy_(torch.tensor([[7.0], [7.0], [2.0], [3.0]]))
        module.key_value.bias.copy_(torch.tensor([9.0, 9.0, 0.0, 1.0]))
        module.out.weight.copy_(torch.tensor([[1.0, 0.0], [1.0, -2.0]]))
        module.out.bias.fill_(5.0)
    norms = module.value_norms(torch.tensor([[[1.0], [-1.0], [0.0]]]))
    expected = torch.tensor([[[2 * math.sqrt(2), 2 * math.sqrt(2), 0.0], [8.0, 4.0, 2.0]]])
    torch.testing.assert_close(norms, expected)


def test_a_weight_times_its_norm_is_the_length_of_what_is_added() -> None:
    torch.manual_seed(0)
    module = MultiHeadCrossAttention(16, 4, context_dim=12, null_key=True)
    x, context = torch.randn(2, 3, 16), torch.randn(2, 1, 12)  # one key: what a head adds is its weight times the value
    _, weights = module(x, context, need_weights=True)
    for head in range(4):
        others = [channel for channel in range(16) if channel // 4 != head]
        alone = MultiHeadCrossAttention(16, 4, context_dim=12, null_key=True)
        alone.load_state_dict(module.state_dict())
        with torch.no_grad():
            alone.out.weight[:, others] = 0.0
        added = alone(x, context).norm(dim=-1)
        torch.testing.assert_close(added, weights[:, head, :, 0] * module.value_norms(context)[:, head])
