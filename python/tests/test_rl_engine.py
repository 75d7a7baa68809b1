"""The demo's inference engine computes what `transformers` computes, split over any ranks."""

from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
import torch.distributed as dist  # noqa: E402

from weightcast.examples.rl_loop.config import ModelConfig  # noqa: E402
from weightcast.examples.rl_loop.engine import TPEngine  # noqa: E402
from weightcast.examples.rl_loop.sampling import sample  # noqa: E402

TOKENS = torch.randint(1, 32, (3, 9), generator=torch.Generator().manual_seed(1))


def reference(tied=True):
    """A random model whose biases and norms are not the zeros and ones they start as."""
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=tied,
    )
    model = transformers.Qwen2ForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model


def fill(engine, model):
    """Puts the model's weights into the engine's shards, as a transfer would."""
    logical = model.state_dict()
    for tensor, parts in engine.parts():
        chunks = []
        for part in parts:
            whole = logical[part.name]
            assert tuple(whole.shape) == part.shape, part.name
            chunks.append(whole.chunk(part.of, part.dim)[part.index])
        tensor.copy_(torch.cat(chunks))


def on_ranks(size, model, act):
    """`act(engine)` on every rank of a tensor-parallel group, a thread each; the results."""
    config = ModelConfig.from_transformers(model.config)
    store = dist.HashStore()

    def rank_main(rank):
        group = dist.ProcessGroupGloo(store, rank, size) if size > 1 else None
        engine = TPEngine(config, rank, size, group)
        fill(engine, model)
        return act(engine)

    with ThreadPoolExecutor(size) as pool:
        return [f.result(timeout=60) for f in [pool.submit(rank_main, r) for r in range(size)]]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_logits_equal_transformers(size, tied):
    model = reference(tied)
    with torch.no_grad():
        want = model(TOKENS).logits
    rows, length = TOKENS.shape
    for got in on_ranks(size, model, lambda e: e(TOKENS, e.new_cache(rows, length))):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [1, 2])
def test_cache_gives_the_same_logits_token_by_token(size):
    model = reference()
    with torch.no_grad():
        want = model(TOKENS).logits

    def token_by_token(engine):
        cache = engine.new_cache(*TOKENS.shape)
        return torch.cat([engine(TOKENS[:, i : i + 1], cache) for i in range(9)], dim=1)

    for got in on_ranks(size, model, token_by_token):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_left_padding_changes_nothing():
    model = reference()
    padding = torch.tensor([0, 2, 5])
    padded = TOKENS.clone()
    for row, pad in enumerate(padding):
        padded[row, :pad] = 0
    (got,) = on_ranks(1, model, lambda e: e(padded, e.new_cache(3, 9), padding))
    assert not got.isnan().any()
    for row, pad in enumerate(padding):
        with torch.no_grad():
            want = model(TOKENS[row : row + 1, pad:]).logits[0]
        torch.testing.assert_close(got[row, pad:], want, rtol=1e-4, atol=1e-4)


def test_greedy_generation_equals_transformers():
    model = reference()
    want = model.generate(TOKENS, max_new_tokens=6, do_sample=False, eos_token_id=None)[:, 9:]
    for got in on_ranks(2, model, lambda e: e.generate(TOKENS, 6, temperature=0)):
        assert torch.equal(got.tokens, want)


def test_ranks_draw_the_same_tokens_and_report_their_logprobs():
    model = reference()

    def draw(engine):
        seeded = torch.Generator().manual_seed(7)
        return engine.generate(TOKENS, 5, temperature=0.7, generator=seeded)

    first, second = on_ranks(2, model, draw)
    assert torch.equal(first.tokens, second.tokens)
    with torch.no_grad():
        logits = model(torch.cat([TOKENS, first.tokens], dim=1)).logits[:, 8:-1] / 0.7
    want = logits.log_softmax(-1).gather(2, first.tokens[..., None]).squeeze(2)
    torch.testing.assert_close(first.logprobs, want, rtol=1e-4, atol=1e-4)


def test_generation_stops_at_the_stop_token():
    model = reference()
    (free,) = on_ranks(1, model, lambda e: e.generate(TOKENS[:1], 6, temperature=0))
    stop = int(free.tokens[0, 2])
    end = free.tokens[0].tolist().index(stop) + 1
    (ended,) = on_ranks(1, model, lambda e: e.generate(TOKENS[:1], 6, temperature=0, stop=stop))
    assert torch.equal(ended.tokens[0, :end], free.tokens[0, :end])
    assert not ended.tokens[0, end:].any() and not ended.logprobs[0, end:].any()


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_rank_holds_its_part_of_every_projection(size):
    config = ModelConfig.from_transformers(reference().config)
    elements = sum(t.numel() for t, _ in TPEngine(config, size - 1, size).parts())
    whole = sum(t.numel() for t, _ in TPEngine(config).parts())
    norms = (2 * config.num_hidden_layers + 1) * config.hidden_size
    copied_kv = 2 * config.head_dim * 33 * config.num_hidden_layers if size == 4 else 0
    assert elements == norms + (whole - norms) // size + copied_kv // 2


def test_impossible_splits_are_refused():
    config = ModelConfig.from_transformers(reference().config)
    with pytest.raises(ValueError, match="num_attention_heads 4 is not a multiple of TP size 3"):
        TPEngine(config, 0, 3)


def test_sampling_follows_the_distribution():
    logits = torch.tensor([[0.0, 1.0, 2.0]]).expand(20_000, 3)
    tokens, _ = sample(logits, 0.5, torch.Generator().manual_seed(3))
    share = tokens.bincount(minlength=3) / len(tokens)
    torch.testing.assert_close(share, (logits[0] / 0.5).softmax(-1), rtol=0, atol=0.02)
