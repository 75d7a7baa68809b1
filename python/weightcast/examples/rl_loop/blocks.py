"""Tensor-parallel Qwen2 blocks, each rank holding only its part of every projection.

The layout is the one inference engines use (Megatron's scheme): `q`, `k`, `v` fused and split by
heads, `gate` and `up` fused and split by rows, `o` and `down` split by columns, the vocabulary
split by rows. Where there are more ranks than KV heads, a KV head lies on several ranks.

A block says with `parts()` what its tensors hold; `engine.TPEngine.layout` turns that into a
weightcast layout. No weight is loaded here: the memory waits for the first version.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from .config import ModelConfig


@dataclass(frozen=True)
class BlockPart:
    """Part `index` of `of` along `dim` of the logical tensor `name`; all of it if `of` is 1."""

    name: str
    shape: tuple[int, ...]
    dim: int = 0
    index: int = 0
    of: int = 1


BlockParts = Iterator[tuple[Tensor, list[BlockPart]]]


@dataclass(frozen=True)
class Ranks:
    """This rank's place in its tensor-parallel group, and the two collectives the blocks need."""

    rank: int
    size: int
    group: dist.ProcessGroup | None = None

    def sum(self, x: Tensor) -> Tensor:
        """The sum of `x` over the ranks, in place."""
        if self.size > 1:
            dist.all_reduce(x, group=self.group)
        return x

    def concat_last(self, x: Tensor) -> Tensor:
        """The ranks' `x` side by side along the last dimension, the same bytes on every rank."""
        if self.size == 1:
            return x
        parts = [torch.empty_like(x) for _ in range(self.size)]
        dist.all_gather(parts, x.contiguous(), group=self.group)
        return torch.cat(parts, dim=-1)


class Past(Protocol):
    """The keys and values of the tokens so far."""

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Stores those of the next tokens; returns all."""


def weight(*shape: int, dtype: torch.dtype) -> nn.Parameter:
    """Memory for a weight that weightcast will fill; inference needs no gradient."""
    return nn.Parameter(torch.zeros(shape, dtype=dtype), requires_grad=False)


class RMSNorm(nn.Module):
    """Root-mean-square normalisation, computed in float32; whole on every rank."""

    def __init__(self, name: str, config: ModelConfig, dtype: torch.dtype):
        super().__init__()
        self.name, self.eps = name, config.rms_norm_eps
        self.weight = weight(config.hidden_size, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """The rows of `x` at unit root mean square, times the weight."""
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)

    def parts(self) -> BlockParts:
        """This rank's tensors, and which parts of logical tensors lie in them."""
        yield self.weight, [BlockPart(f"{self.name}.weight", tuple(self.weight.shape))]


class Attention(nn.Module):
    """Grouped-query attention over this rank's heads: fused `qkv_proj`, row-parallel `o_proj`."""

    def __init__(self, name: str, config: ModelConfig, ranks: Ranks, dtype: torch.dtype):
        super().__init__()
        self.name, self.config, self.ranks = name, config, ranks
        self.heads = config.num_attention_heads // ranks.size
        self.kv_heads = max(1, config.num_key_value_heads // ranks.size)
        head, hidden = config.head_dim, config.hidden_size
        rows = (self.heads + 2 * self.kv_heads) * head
        self.qkv_proj = weight(rows, hidden, dtype=dtype)
        self.qkv_bias = weight(rows, dtype=dtype)
        self.o_proj = weight(hidden, self.heads * head, dtype=dtype)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor, past: Past) -> Tensor:
        """What the tokens `x` take from those that `mask` lets them see; `past` keeps their keys."""
        batch, length, _ = x.shape
        fused = F.linear(x, self.qkv_proj, self.qkv_bias)
        fused = fused.view(batch, length, -1, self.config.head_dim).transpose(1, 2)
        q, k, v = fused.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        k, v = past.append(rotate(k, *rotary), v)
        repeat = self.heads // self.kv_heads
        k, v = k.repeat_interleave(repeat, dim=1), v.repeat_interleave(repeat, dim=1)
        out = F.scaled_dot_product_attention(rotate(q, *rotary), k, v, attn_mask=mask)
        out = out.transpose(1, 2).reshape(batch, length, -1)
        return self.ranks.sum(F.linear(out, self.o_proj))

    def parts(self) -> BlockParts:
        """This rank's tensors, and which parts of logical tensors lie in them."""
        c, tp = self.config, self.ranks
        copies = max(1, tp.size // c.num_key_value_heads)
        q = (c.num_attention_heads * c.head_dim, tp.rank, tp.size)
        kv = (c.num_key_value_heads * c.head_dim, tp.rank // copies, tp.size // copies)
        for tensor, kind in (self.qkv_proj, "weight"), (self.qkv_bias, "bias"):
            parts = [
                BlockPart(f"{self.name}.{x}_proj.{kind}", (rows, *tensor.shape[1:]), 0, index, of)
                for x, (rows, index, of) in zip("qkv", (q, kv, kv), strict=True)
            ]
            yield tensor, parts
        whole = (c.hidden_size, q[0])
        yield self.o_proj, [BlockPart(f"{self.name}.o_proj.weight", whole, 1, tp.rank, tp.size)]


class MLP(nn.Module):
    """Gated MLP: fused column-parallel `gate_up_proj`, row-parallel `down_proj`."""

    def __init__(self, name: str, config: ModelConfig, ranks: Ranks, dtype: torch.dtype):
        super().__init__()
        self.name, self.config, self.ranks = name, config, ranks
        width, hidden = config.intermediate_size // ranks.size, config.hidden_size
        self.gate_up_proj = weight(2 * width, hidden, dtype=dtype)
        self.down_proj = weight(hidden, width, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Each token by itself; the sum over the ranks."""
        gate, up = F.linear(x, self.gate_up_proj).chunk(2, dim=-1)
        return self.ranks.sum(F.linear(F.silu(gate) * up, self.down_proj))

    def parts(self) -> BlockParts:
        """This rank's tensors, and which parts of logical tensors lie in them."""
        wide, hidden = self.config.intermediate_size, self.config.hidden_size
        share = (self.ranks.rank, self.ranks.size)
        names = f"{self.name}.gate_proj.weight", f"{self.name}.up_proj.weight"
        yield self.gate_up_proj, [BlockPart(name, (wide, hidden), 0, *share) for name in names]
        yield self.down_proj, [BlockPart(f"{self.name}.down_proj.weight", (hidden, wide), 1, *share)]


class Vocabulary(nn.Module):
    """A `[vocabulary, hidden]` table split by rows: an embedding, an output head, or both."""

    def __init__(self, name: str, config: ModelConfig, ranks: Ranks, dtype: torch.dtype):
        super().__init__()
        self.name, self.config, self.ranks = name, config, ranks
        self.rows = config.vocab_size // ranks.size
        self.weight = weight(self.rows, config.hidden_size, dtype=dtype)

    def embed(self, tokens: Tensor) -> Tensor:
        """The tokens' rows; a rank contributes zeros for tokens it doesn't hold."""
        local = tokens - self.ranks.rank * self.rows
        mine = (local >= 0) & (local < self.rows)
        rows = F.embedding(local.clamp(0, self.rows - 1), self.weight)
        return self.ranks.sum(rows * mine[..., None])

    def logits(self, x: Tensor) -> Tensor:
        """The logits over the whole vocabulary, the same bytes on every rank."""
        return self.ranks.concat_last(F.linear(x, self.weight))

    def parts(self) -> BlockParts:
        """This rank's tensors, and which parts of logical tensors lie in them."""
        shape = (self.config.vocab_size, self.config.hidden_size)
        yield self.weight, [BlockPart(self.name, shape, 0, self.ranks.rank, self.ranks.size)]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding of `[batch, heads, length, head_dim]`."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin
