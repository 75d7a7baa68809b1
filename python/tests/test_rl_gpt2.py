"""The engine's GPT-2 computes what `transformers` computes, split over any ranks."""

from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import torch.distributed as dist  # noqa: E402

import weightcast as wc  # noqa: E402
import weightcast.torch as wct  # noqa: E402
from weightcast.examples.rl.gpt2 import GPT2Engine, GPT2Sizes  # noqa: E402

SOON = 20.0
TOKENS = torch.randint(1, 32, (3, 9), generator=torch.Generator().manual_seed(1))


def reference():
    """A random model whose biases and norms are not the zeros and ones they start as."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=32, n_positions=20, n_embd=32, n_layer=2, n_head=4)
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


@pytest.fixture
def on_ranks(server):
    """`on_ranks(size, model, act)`: `act(engine)` on every rank of a group whose weights came from a trainer
    of this model; the results."""

    def run(size, model, act):
        sizes, store = GPT2Sizes.from_transformers(model.config), dist.HashStore()

        def rank_main(rank):
            group = dist.ProcessGroupGloo(store, rank, size) if size > 1 else None
            engine = GPT2Engine(sizes, rank, size, group)
            with wc.open("policy", wc.Replica("rollout", rank, size), server=server.address) as handle:
                handle.register(engine.layout(), deadline=SOON)
                handle.update(deadline=SOON)
                return act(engine)

        with (
            wc.open("policy", wc.Replica("trainer"), role="trainer", epoch="new", server=server.address) as handle,
            ThreadPoolExecutor(size) as pool,
        ):
            handle.register(wct.layout(model, buffers=False), deadline=SOON)
            handle.publish(0)
            return [f.result(timeout=60) for f in [pool.submit(rank_main, r) for r in range(size)]]

    return run


@pytest.mark.parametrize("size", [1, 2, 4])
def test_logits_equal_transformers(on_ranks, size):
    model = reference()
    with torch.no_grad():
        want = model(TOKENS).logits

    def both(engine):
        at_once = engine(TOKENS, engine.new_cache(*TOKENS.shape))
        cache = engine.new_cache(*TOKENS.shape)
        return at_once, torch.cat([engine(TOKENS[:, i : i + 1], cache) for i in range(9)], dim=1)

    for at_once, token_by_token in on_ranks(size, model, both):
        torch.testing.assert_close(at_once, want, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(token_by_token, want, rtol=1e-4, atol=1e-4)


def test_left_padding_changes_nothing(on_ranks):
    model = reference()
    padding = torch.tensor([0, 2, 5])
    padded = TOKENS.clone()
    for row, pad in enumerate(padding):
        padded[row, :pad] = 0
    (got,) = on_ranks(1, model, lambda e: e(padded, e.new_cache(3, 9), padding))
    for row, pad in enumerate(padding):
        with torch.no_grad():
            want = model(TOKENS[row : row + 1, pad:]).logits[0]
        torch.testing.assert_close(got[row, pad:], want, rtol=1e-4, atol=1e-4)


def test_greedy_generation_equals_transformers(on_ranks):
    model = reference()
    want = model.generate(TOKENS, max_new_tokens=6, do_sample=False, eos_token_id=None)[:, 9:]
    for got in on_ranks(2, model, lambda e: e.generate(TOKENS, 6, temperature=0)):
        assert torch.equal(got.tokens, want)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation_function": "relu"}, "'relu' is not supported"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scaled by layers"),
    ],
)
def test_what_it_does_not_compute_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GPT2Sizes.from_transformers(transformers.GPT2Config(**options))


def test_ranks_that_do_not_divide_the_heads_are_refused():
    sizes = GPT2Sizes.from_transformers(transformers.GPT2Config(n_head=4, n_embd=32))
    with pytest.raises(ValueError, match="heads 4 is not a multiple of TP size 3"):
        GPT2Engine(sizes, 0, 3)
