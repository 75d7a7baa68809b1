"""Tensor-parallel GPT-2: the demo's engine, extended to another architecture.

Queries, keys and values come as one tensor, of which a rank holds its columns of each third; all
matrices are `[in, out]`, as GPT-2 has them, so what Qwen2 cuts by rows is cut by columns here.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from ..rl_loop.blocks import BlockPart, BlockParts, Past, Ranks, weight
from ..rl_loop.engine import Decoder, KVCache, attention_mask


@dataclass(frozen=True)
class GPT2Sizes:
    """What the engine needs to know of a GPT-2 model. `hidden_size` is GPT-2's `n_embd`."""

    vocab_size: int
    hidden_size: int
    inner_size: int
    layers: int
    heads: int
    positions: int
    epsilon: float

    @classmethod
    def from_transformers(cls, config: Any) -> "GPT2Sizes":
        """The sizes of a `transformers.GPT2Config`. Refuses what the engine doesn't compute."""
        if config.activation_function != "gelu_new":
            raise ValueError(f"activation {config.activation_function!r} is not supported, only 'gelu_new'")
        if config.scale_attn_by_inverse_layer_idx or not config.scale_attn_weights:
            raise ValueError("attention that is scaled by layers, or not at all, is not supported")
        return cls(
            vocab_size=config.vocab_size,
            hidden_size=config.n_embd,
            inner_size=config.n_inner or 4 * config.n_embd,
            layers=config.n_layer,
            heads=config.n_head,
            positions=config.n_positions,
            epsilon=config.layer_norm_epsilon,
        )

    def check_tensor_parallel(self, size: int) -> None:
        """Raises `ValueError` if the model cannot be split over `size` ranks."""
        for name in "heads", "inner_size", "vocab_size":
            if getattr(self, name) % size:
                raise ValueError(f"{name} {getattr(self, name)} is not a multiple of TP size {size}")


class Norm(nn.Module):
    """Layer normalisation, whole on every rank."""

    def __init__(self, name: str, sizes: GPT2Sizes, dtype: torch.dtype):
        super().__init__()
        self.name, self.epsilon = name, sizes.epsilon
        self.weight = weight(sizes.hidden_size, dtype=dtype)
        self.bias = weight(sizes.hidden_size, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """The rows of `x` at mean 0 and deviation 1, scaled and moved."""
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.epsilon)

    def parts(self) -> BlockParts:
        """This rank's tensors, and which parts of logical tensors lie in them."""
        for kind, tensor in ("weight", self.weight), ("bias", self.bias):
            yield tensor, [BlockPart(f"{self.name}.{kind}", tuple(tensor.shape))]


class Columns(nn.Module):
    """A matrix `[in, out]` and its bias of which this rank has columns, of each of `thirds` parts its
    share: the outputs are this rank's alone."""

    def __init__(self, name: str, shape: tuple[int, int], thirds: int, ranks: Ranks, dtype: torch.dtype):
        super().__init__()
        self.name, self.shape, self.thirds, self.ranks = name, shape, thirds, ranks
        self.weight = weight(shape[0], shape[1] // ranks.size, dtype=dtype)
        self.bias = weight(shape[1] // ranks.size, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """This rank's outputs."""
        return x @ self.weight + self.bias

    def parts(self) -> BlockParts:
        """This rank's tensors, and which parts of logical tensors lie in them."""
        size, of = self.ranks.size, self.thirds * self.ranks.size
        mine = [third * size + self.ranks.rank for third in range(self.thirds)]
        yield self.weight, [BlockPart(f"{self.name}.weight", self.shape, 1, at, of) for at in mine]
        yield self.bias, [BlockPart(f"{self.name}.bias", self.shape[1:], 0, at, of) for at in mine]


class Rows(nn.Module):
    """A matrix `[in, out]` of which this rank has rows; the ranks' outputs are summed."""

    def __init__(self, name: str, shape: tuple[int, int], ranks: Ranks, dtype: torch.dtype):
        super().__init__()
        self.name, self.shape, self.ranks = name, shape, ranks
        self.weight = weight(shape[0] // ranks.size, shape[1], dtype=dtype)
        self.bias = weight(shape[1], dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """The sum over the ranks, and the bias once."""
        return self.ranks.sum(x @ self.weight) + self.bias

    def parts(self) -> BlockParts:
        """This rank's tensors, and which parts of logical tensors lie in them."""
        share = 0, self.ranks.rank, self.ranks.size
        yield self.weight, [BlockPart(f"{self.name}.weight", self.shape, *share)]
        yield self.bias, [BlockPart(f"{self.name}.bias", self.shape[1:])]


class Block(nn.Module):
    """One GPT-2 layer over this rank's heads and this rank's part of the MLP."""

    def __init__(self, name: str, sizes: GPT2Sizes, ranks: Ranks, dtype: torch.dtype):
        super().__init__()
        hidden, inner = sizes.hidden_size, sizes.inner_size
        self.heads, self.head_dim = sizes.heads // ranks.size, hidden // sizes.heads
        self.ln_1 = Norm(f"{name}.ln_1", sizes, dtype)
        self.c_attn = Columns(f"{name}.attn.c_attn", (hidden, 3 * hidden), 3, ranks, dtype)
        self.c_proj = Rows(f"{name}.attn.c_proj", (hidden, hidden), ranks, dtype)
        self.ln_2 = Norm(f"{name}.ln_2", sizes, dtype)
        self.c_fc = Columns(f"{name}.mlp.c_fc", (hidden, inner), 1, ranks, dtype)
        self.mlp_proj = Rows(f"{name}.mlp.c_proj", (inner, hidden), ranks, dtype)

    def forward(self, x: Tensor, mask: Tensor, past: Past) -> Tensor:
        """Attention, then the MLP, each added to the tokens `x`."""
        batch, length, _ = x.shape
        fused = self.c_attn(self.ln_1(x)).view(batch, length, 3, self.heads, self.head_dim)
        q, k, v = (each.transpose(1, 2) for each in fused.unbind(2))
        k, v = past.append(k, v)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.c_proj(out.transpose(1, 2).reshape(batch, length, -1))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    def parts(self) -> BlockParts:
        """This rank's tensors, and which parts of logical tensors lie in them."""
        for child in self.children():
            yield from child.parts()


class GPT2Engine(Decoder):
    """Rank `tp_rank` of a group of `tp_size` that together run one GPT-2 model; as `TPEngine`."""

    def __init__(
        self,
        sizes: GPT2Sizes,
        tp_rank: int = 0,
        tp_size: int = 1,
        group: dist.ProcessGroup | None = None,
        dtype: torch.dtype = torch.float32,
    ):
        sizes.check_tensor_parallel(tp_size)
        ranks = Ranks(tp_rank, tp_size, group)
        super().__init__(ranks, dtype)
        self.sizes, self.rows = sizes, sizes.vocab_size // tp_size
        self.wte = weight(self.rows, sizes.hidden_size, dtype=dtype)
        self.wpe = weight(sizes.positions, sizes.hidden_size, dtype=dtype)
        self.blocks = nn.ModuleList(
            Block(f"transformer.h.{i}", sizes, ranks, dtype) for i in range(sizes.layers)
        )
        self.ln_f = Norm("transformer.ln_f", sizes, dtype)

    def parts(self) -> BlockParts:
        """Every tensor this rank holds, once; the head is the embedding."""
        share = 0, self.ranks.rank, self.ranks.size
        whole = (self.sizes.vocab_size, self.sizes.hidden_size)
        yield self.wte, [BlockPart("transformer.wte.weight", whole, *share)]
        yield self.wpe, [BlockPart("transformer.wpe.weight", tuple(self.wpe.shape))]
        for block in (*self.blocks, self.ln_f):
            yield from block.parts()

    def new_cache(self, rows: int, capacity: int) -> list[KVCache]:
        """An empty cache per layer for `rows` sequences of at most `capacity` tokens."""
        heads, head_dim = self.blocks[0].heads, self.blocks[0].head_dim
        return [KVCache(rows, heads, capacity, head_dim, self.dtype) for _ in self.blocks]

    @torch.no_grad()
    def forward(
        self, tokens: Tensor, cache: list[KVCache], padding: Tensor | None = None
    ) -> Tensor:
        """Logits `[rows, n, vocabulary]` of the next `n` tokens of each row, which the cache joins."""
        past, length = cache[0].length, tokens.shape[1]
        padding = tokens.new_zeros(tokens.shape[0]) if padding is None else padding
        at = torch.arange(past, past + length)
        mask = attention_mask(at, padding)
        x = self._embed(tokens) + F.embedding((at[None] - padding[:, None]).clamp(min=0), self.wpe)
        for block, block_cache in zip(self.blocks, cache, strict=True):
            x = block(x, mask, block_cache)
        return self.ranks.concat_last(F.linear(self.ln_f(x), self.wte))

    def _embed(self, tokens: Tensor) -> Tensor:
        local = tokens - self.ranks.rank * self.rows
        mine = (local >= 0) & (local < self.rows)
        rows = F.embedding(local.clamp(0, self.rows - 1), self.wte)
        return self.ranks.sum(rows * mine[..., None])
