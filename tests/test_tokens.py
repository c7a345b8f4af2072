"""Fewer tokens: blocks of keys give the whole softmax; merging is what a loop does, and of equal tokens it is exact."""

import copy
import math
from itertools import pairwise

import pytest
import torch
from torch.nn.functional import cosine_similarity, scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

import vit_tutorial as vt
from vit_tutorial.variants import modern, tokens
from vit_tutorial.variants.tokens import FewerTokens


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def small(**changes):
    torch.manual_seed(0)
    config = vt.ViTConfig(image_size=16, patch_size=4, num_classes=5, dim=24, depth=3, num_heads=3, mlp_dim=40)
    model = vt.ViT(vt.ViTConfig(**(vars(config) | changes))).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


# ---- Attention in blocks of keys ---------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [1, 3, 7, 20])
def test_blocks_of_keys_give_the_whole_attention(block):
    q, k, v = normal(2, 3, 5, 4), 3 * normal(2, 3, 7, 4, seed=1), normal(2, 3, 7, 6, seed=2)
    found = tokens.blockwise_attention(q, k, v, block)
    for expected in (vt.dot_product_attention(q, k, v)[0], scaled_dot_product_attention(q, k, v)):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


class Largest(TorchDispatchMode):
    """Notes the numbers in the largest tensor that an operation gives back."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        given = out if isinstance(out, (tuple, list)) else (out,)
        self.numbers = max(self.numbers, *(part.numel() for part in given if isinstance(part, torch.Tensor)), 0)
        return out


def test_blocks_of_keys_never_hold_all_scores():
    q, k, v = torch.randn(3, 1, 2, 257, 16)
    with Largest() as seen:
        tokens.blockwise_attention(q, k, v, 64)
    assert seen.numbers == 2 * 257 * 64


def test_scores_too_large_for_exp_are_no_trouble():
    q, k, v = 100 * normal(1, 4, 4), 100 * normal(1, 6, 4, seed=1), normal(1, 6, 2, seed=2)
    assert math.isinf((q @ k.mT / 2).exp().max())
    torch.testing.assert_close(tokens.blockwise_attention(q, k, v, 2), vt.dot_product_attention(q, k, v)[0])


# ---- Which tokens go where ---------------------------------------------------------------------------------------


def matched_by_loop(keys, r, protected):
    """The same by Python's own loops: {token: the place that it goes to}."""
    pairs = []
    for i in range(0, len(keys), 2):
        found = [
            (float(cosine_similarity(keys[i], keys[j], dim=0)), j) for j in range(1, len(keys), 2) if j >= protected
        ]
        if i >= protected:
            pairs.append((*max(found), i))
    partner = {i: j for _, j, i in sorted(pairs, reverse=True)[:r]}
    stays = [t for t in range(len(keys)) if t not in partner]
    return [stays.index(partner.get(t, t)) for t in range(len(keys))]


@pytest.mark.parametrize("protected", [0, 1, 2])
@pytest.mark.parametrize(("T", "r"), [(9, 3), (8, 3), (17, 0), (17, 7)])
def test_the_matching_is_the_loops(T, r, protected):
    keys = normal(4, T, 3, seed=T + r)
    destination = tokens.bipartite_matching(keys, r, protected)
    assert destination.tolist() == [matched_by_loop(one, r, protected) for one in keys]
    assert (destination[:, :protected] == torch.arange(protected)).all()
    assert (destination.amax(dim=1) == T - r - 1).all()


def test_no_more_pairs_than_there_are(refuses):
    tokens.bipartite_matching(normal(1, 9, 2), 4)
    with refuses(ValueError, "r=5", "0 to 4"):
        tokens.bipartite_matching(normal(1, 9, 2), 5)


def test_the_lowest_are_dropped_but_not_those_in_front():
    scores = torch.tensor([[0.0, 5, 1, 4, 2], [9.0, 1, 2, 3, 4]])
    assert tokens.drop_lowest(scores, 2).tolist() == [[0, 1, -1, 2, -1], [0, -1, -1, 1, 2]]
    assert scores[0, 0] == 0, "changed in place"
    q, k = normal(2, 3, 6, 4), normal(2, 3, 6, 4, seed=1)
    weights = vt.dot_product_attention(q, k, k)[1].mean(dim=1)[:, 0]  # (B, T), of the class token
    kept = tokens.drop_least_attended(q, k, 2, 1) >= 0
    assert (weights[:, 1:][kept[:, 1:]].view(2, 3).amin(1) > weights[:, 1:][~kept[:, 1:]].view(2, 2).amax(1)).all()
    assert kept[:, 0].all()


def test_merging_weighs_by_size_and_dropping_forgets():
    z, sizes = torch.tensor([[[1.0], [2.0], [6.0], [5.0]]]), torch.tensor([[1.0, 3.0, 1.0, 2.0]])
    merged, now = tokens.merge(z, sizes, torch.tensor([[0, 1, 1, 2]]), 3)
    assert merged.flatten().tolist() == [1.0, 3.0, 5.0]
    assert now.tolist() == [[1, 4, 2]]
    left, now = tokens.merge(z, sizes, torch.tensor([[0, -1, 1, 2]]), 3)
    assert left.flatten().tolist() == [1.0, 6.0, 5.0]
    assert now.tolist() == [[1, 1, 2]]


# ---- A whole model -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_with_all_tokens_it_is_the_model(pool):
    model, x = small(pool=pool), normal(2, 3, 16, 16)
    torch.testing.assert_close(FewerTokens(model, 0)(x), model(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_of_equal_tokens_merging_is_exact_if_sizes_count(pool):
    # Without positions every patch of one colour is the same token.
    model = small(pool=pool, position="none")
    x = torch.where(torch.arange(16)[:, None] < 8, 0.3, -1.0).expand(2, 3, 16, 16).double()
    whole = model(x)
    torch.testing.assert_close(FewerTokens(model, 4)(x), whole, rtol=0, atol=1e-12)
    assert (FewerTokens(model, 4, proportional=False)(x) - whole).abs().max() > 1e-3
    if pool == "cls":
        assert (FewerTokens(model, 4, tokens.drop_least_attended)(x) - whole).abs().max() > 1e-3
    else:
        with pytest.raises(ValueError, match="there is no class token whose attention could choose"):
            FewerTokens(model, 4, tokens.drop_least_attended)(x)


def test_it_says_where_each_patch_went():
    model, x = small(), normal(2, 3, 16, 16)
    merged = FewerTokens(model, 3).encode(x)
    assert [len(source[0].unique()) for source in merged.sources] == [17, 14, 11, 8]
    counts = torch.stack([source.bincount(minlength=8) for source in merged.sources[-1]])
    assert torch.equal(counts.double(), merged.sizes)
    dropped = FewerTokens(model, 3, tokens.drop_least_attended).encode(x)
    assert [(source < 0).sum(dim=1).tolist() for source in dropped.sources] == [[0, 0], [3, 3], [6, 6], [9, 9]]
    assert (dropped.sizes == 1).all()
    once_gone = [source < 0 for source in dropped.sources]
    assert all((before <= after).all() for before, after in pairwise(once_gone))


def test_the_models_weights_are_its_own_and_stay():
    model, x = small(), normal(2, 3, 16, 16)
    before = copy.deepcopy(model.state_dict())
    fewer = FewerTokens(model, 2)
    fewer(x).sum().backward()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.embed.patches.proj.weight.grad.abs().sum() > 0  # it can be fine-tuned


def test_blockwise_attention_refuses_what_dot_product_attention_refuses(refuses):
    q, k, v = normal(1, 4, 8), normal(1, 5, 8), normal(1, 5, 3)
    with refuses(ValueError, "(..., S, d)", "(1, 4, 8), (1, 5, 7) and (1, 5, 3)"):
        tokens.blockwise_attention(q, k[..., :7], v, 2)
    with refuses(ValueError, "(..., S, e)", "(1, 4, 8), (1, 5, 8) and (1, 4, 3)"):
        tokens.blockwise_attention(q, k, v[:, :4], 2)


def test_refusals(refuses):
    with refuses(ValueError, "r=-1", "keeps all tokens"):
        FewerTokens(small(), -1)
    config = modern.ModernConfig(image_size=16, patch_size=4, num_classes=5, dim=24, depth=2, num_heads=3, mlp_dim=40)
    with refuses(TypeError, "ModernViT", "plain vt.ViT"):
        FewerTokens(modern.build(config), 2)


@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_tokens_and_operations_are_counted(pool):
    model = small(pool=pool)
    config = model.config
    assert tokens.count_macs(config, 0) == vt.count_macs(config)
    for r in (3, 9):
        sources = FewerTokens(model, r).encode(normal(1, 3, 16, 16)).sources
        left = tokens.tokens_left(config.num_tokens, r, config.depth, config.prefix_tokens)
        assert left == [int(source.max()) + 1 for source in sources]
    # By hand: D = 24, M = 40, d = 8; 17 tokens, then 14 and 11 (16, 13, 10 without a class token).
    with_class = pool == "cls"
    by_hand = 16 * 3 * 16 * 24 + 24 * 5
    for before, pairs in zip((17, 14, 11) if with_class else (16, 13, 10),
                             (9 * 8, 7 * 7, 6 * 5) if with_class else (8 * 8, 7 * 6, 5 * 5), strict=True):  # fmt: skip
        by_hand += before * 4 * 24**2 + 2 * before**2 * 24 + pairs * 8 + (before - 3) * 2 * 24 * 40
    assert tokens.count_macs(config, 3) == by_hand


def test_blocks_of_another_kind_are_refused():
    config = vt.ViTConfig(image_size=8, patch_size=4, dim=8, depth=1, num_heads=2, mlp_dim=8)
    with pytest.raises(TypeError, match="blocks of other kinds, Identity"):
        FewerTokens(vt.ViT(config, blocks=[torch.nn.Identity()]), r=1)


@pytest.mark.parametrize("part", ["attention", "mlp"])
def test_parts_that_would_be_skipped_are_refused(part, refuses):
    model = small()
    plain = type(getattr(model.blocks[1], part))
    getattr(model.blocks[1], part).__class__ = type("Mine", (plain,), {})
    with refuses(TypeError, "Mine", "a plain vt.ViT"):
        FewerTokens(model, 1)
