"""A small tensor-parallel inference engine for Qwen2 models.

Each rank holds its shards and nothing else; batches, a KV cache and sampling; logits equal
`transformers.Qwen2ForCausalLM` within rounding. Weights arrive by weightcast: register
`engine.layout()`, replicate a version, generate. `Decoder` is what an engine of another
architecture shares.
"""

from abc import abstractmethod

import torch
import torch.distributed as dist
from torch import Tensor, nn

import weightcast as wc

from .blocks import MLP, Attention, BlockParts, Ranks, RMSNorm, Vocabulary
from .config import ModelConfig
from .sampling import Sampled, sample


class KVCache:
    """The keys and values of one layer, with room for `capacity` tokens in each row."""

    def __init__(self, rows: int, heads: int, capacity: int, head_dim: int, dtype: torch.dtype):
        self.keys = torch.zeros(rows, heads, capacity, head_dim, dtype=dtype)
        self.values = torch.zeros_like(self.keys)
        self.length = 0

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Stores the next tokens' `[rows, heads, n, head_dim]`; returns all stored so far."""
        start, self.length = self.length, self.length + keys.shape[2]
        self.keys[:, :, start : self.length] = keys
        self.values[:, :, start : self.length] = values
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]


class Layer(nn.Module):
    """One Qwen2 decoder layer."""

    def __init__(self, name: str, config: ModelConfig, ranks: Ranks, dtype: torch.dtype):
        super().__init__()
        self.input_norm = RMSNorm(f"{name}.input_layernorm", config, dtype)
        self.attention = Attention(f"{name}.self_attn", config, ranks, dtype)
        self.output_norm = RMSNorm(f"{name}.post_attention_layernorm", config, dtype)
        self.mlp = MLP(f"{name}.mlp", config, ranks, dtype)

    def forward(
        self, x: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor, past: KVCache
    ) -> Tensor:
        """Attention, then the MLP, each added to the tokens `x`."""
        x = x + self.attention(self.input_norm(x), rotary, mask, past)
        return x + self.mlp(self.output_norm(x))

    def parts(self) -> BlockParts:
        """This rank's tensors of the layer, and which parts of logical tensors lie in them."""
        for block in self.children():
            yield from block.parts()


class Decoder(nn.Module):
    """One rank of an engine: what it holds as a layout, and generation over what its model computes."""

    def __init__(self, ranks: Ranks, dtype: torch.dtype):
        super().__init__()
        self.ranks, self.dtype = ranks, dtype

    @abstractmethod
    def parts(self) -> BlockParts:
        """Every tensor this rank holds, once, and which parts of logical tensors lie in it."""

    @abstractmethod
    def new_cache(self, rows: int, capacity: int) -> list[KVCache]:
        """An empty cache per layer for `rows` sequences of at most `capacity` tokens."""

    @abstractmethod
    def forward(
        self, tokens: Tensor, cache: list[KVCache], padding: Tensor | None = None
    ) -> Tensor:
        """Logits `[rows, n, vocabulary]` of the next `n` tokens of each row, which the cache joins.

        `padding` is how many tokens at the start of each row are padding, `[rows]`; None for none.
        """

    def layout(self) -> wc.Layout:
        """What this rank's memory holds, for `handle.register`.

        A tied head is the embedding, under that name alone, as in published checkpoints.
        """
        layout = wc.Layout()
        for tensor, parts in self.parts():
            layout.add(
                tensor,
                [wc.part(p.name, dim=p.dim, index=p.index, of=p.of, shape=p.shape) for p in parts],
                along=parts[0].dim if len(parts) > 1 else 0,  # fused parts lie side by side as they are cut
            )
        return layout

    @torch.no_grad()
    def generate(
        self,
        prompts: Tensor,
        new_tokens: int,
        *,
        padding: Tensor | None = None,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
        stop: int | None = None,
    ) -> Sampled:
        """Answers a batch of prompts `[rows, tokens]` (left-padded where `padding` says so).

        Every rank must pass the same prompts and an equally seeded generator. Ends early when
        every row has drawn the `stop` token.
        """
        rows, length = prompts.shape
        cache = self.new_cache(rows, length + new_tokens)
        tokens = prompts.new_zeros(rows, new_tokens)
        logprobs = torch.zeros(rows, new_tokens)
        running = torch.ones(rows, dtype=torch.bool)
        step = prompts
        for i in range(new_tokens):
            logits = self.forward(step, cache, padding)[:, -1]
            drawn, logprob = sample(logits, temperature, generator)
            tokens[:, i] = torch.where(running, drawn, 0)
            logprobs[:, i] = torch.where(running, logprob, 0.0)
            step = tokens[:, i : i + 1]
            if stop is not None:
                running = running & (drawn != stop)
                if not running.any():
                    break
        return Sampled(tokens, logprobs)


class TPEngine(Decoder):
    """Rank `tp_rank` of a group of `tp_size` that together run one Qwen2 model.

    `group` is the process group of the collectives (gloo on CPU; None for the default group, and
    unused when `tp_size` is 1). Every rank must make the same calls. Raises `ValueError` if the
    model cannot be split so.
    """

    def __init__(
        self,
        config: ModelConfig,
        tp_rank: int = 0,
        tp_size: int = 1,
        group: dist.ProcessGroup | None = None,
        dtype: torch.dtype = torch.float32,
    ):
        config.check_tensor_parallel(tp_size)
        ranks = Ranks(tp_rank, tp_size, group)
        super().__init__(ranks, dtype)
        self.config = config
        self.embedding = Vocabulary("model.embed_tokens.weight", config, ranks, dtype)
        self.layers = nn.ModuleList(
            Layer(f"model.layers.{i}", config, ranks, dtype)
            for i in range(config.num_hidden_layers)
        )
        self.norm = RMSNorm("model.norm", config, dtype)
        tied = config.tie_word_embeddings
        self.head = self.embedding if tied else Vocabulary("lm_head.weight", config, ranks, dtype)

    def parts(self) -> BlockParts:
        """Every tensor this rank holds, once, and which parts of logical tensors lie in it."""
        for block in (self.embedding, *self.layers, self.norm):
            yield from block.parts()
        if self.head is not self.embedding:
            yield from self.head.parts()

    def new_cache(self, rows: int, capacity: int) -> list[KVCache]:
        """An empty cache per layer for `rows` sequences of at most `capacity` tokens."""
        heads = self.layers[0].attention.kv_heads
        head_dim = self.config.head_dim
        return [KVCache(rows, heads, capacity, head_dim, self.dtype) for _ in self.layers]

    @torch.no_grad()
    def forward(
        self, tokens: Tensor, cache: list[KVCache], padding: Tensor | None = None
    ) -> Tensor:
        """Logits `[rows, n, vocabulary]` of the next `n` tokens of each row, which the cache joins.

        `padding` is how many tokens at the start of each row are padding, `[rows]`; None for none.
        """
        past, length = cache[0].length, tokens.shape[1]
        padding = tokens.new_zeros(tokens.shape[0]) if padding is None else padding
        at = torch.arange(past, past + length)
        rotary = self._rotary(at[None] - padding[:, None])
        mask = attention_mask(at, padding)
        x = self.embedding.embed(tokens)
        for layer, layer_cache in zip(self.layers, cache, strict=True):
            x = layer(x, rotary, mask, layer_cache)
        return self.head.logits(self.norm(x))

    def _rotary(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines `[rows, 1, n, head_dim]` of `[rows, n]` positions."""
        dim = self.config.head_dim
        frequency = self.config.rope_theta ** -(torch.arange(0, dim, 2).float() / dim)
        angle = positions[:, None, :, None].float() * frequency
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos().to(self.dtype), angle.sin().to(self.dtype)


def attention_mask(at: Tensor, padding: Tensor) -> Tensor:
    """Who sees whom, `[rows, 1, n, past + n]`: no future, no padding.

    A padding token sees itself: a row of the softmax without any entry would be NaN and would
    spread to the whole sequence through the values.
    """
    seen = torch.arange(int(at[-1]) + 1)
    causal = seen[None, :] <= at[:, None]
    real = seen[None, :] >= padding[:, None]
    itself = seen[None, :] == at[:, None]
    return (causal[None] & real[:, None, :] | itself[None])[:, None]
