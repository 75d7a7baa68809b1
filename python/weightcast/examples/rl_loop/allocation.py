"""The proof that a tensor-parallel rollout never holds a full projection.

`AllocationWatch` sees the result of every torch operation of its thread: creation, copies, views,
arithmetic. It fails on the first tensor that has the shape of a whole projection, fused or not,
transposed or flat, and is not the memory of a registered shard. (Half of `gate_up_proj` has the
shape of a whole `gate_proj`: the shape alone would accuse the innocent.) Weightcast writes into
the registered shards themselves, so there is no other place for a full weight to be.

Activations of such a shape would be accused too: `ambiguous_rows` says which batches to avoid.
"""

import math
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .config import ModelConfig
from .engine import TPEngine

Shape = tuple[int, ...]


class FullTensor(Exception):
    """A tensor that may be a whole projection, where only shards may be."""


def full_shapes(config: ModelConfig) -> dict[Shape, str]:
    """The matrix shapes no rank of a tensor-parallel group may make, and whose they are."""
    c = config
    q, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
    hidden, wide = c.hidden_size, c.intermediate_size
    shapes: dict[Shape, str] = {
        (q, hidden): "q_proj",
        (kv, hidden): "k_proj or v_proj",
        (q + 2 * kv, hidden): "qkv_proj",
        (hidden, q): "o_proj",
        (wide, hidden): "gate_proj or up_proj",
        (2 * wide, hidden): "gate_up_proj",
        (hidden, wide): "down_proj",
        (c.vocab_size, hidden): "embed_tokens or lm_head",
    }
    return {shape[::-1]: name for shape, name in shapes.items()} | shapes


def ambiguous_rows(config: ModelConfig) -> set[int]:
    """Row counts (sequences, or sequences times tokens) whose activations look like weights."""
    return {side for shape in full_shapes(config) for side in shape}


class AllocationWatch(TorchDispatchMode):
    """While entered, raises `FullTensor` on the first tensor that may be a whole projection.

    Build the engine inside it, then call `settle(engine)`: what was made until then must have
    become a shard, what is made from then on is judged at once.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        matrices = full_shapes(config)
        self.forbidden = matrices | {(math.prod(shape),): name for shape, name in matrices.items()}
        self.tensors_seen = 0
        self.largest_shard: Shape = ()
        self._shards: set[int] | None = None
        self._suspects: list[tuple[Tensor, str]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._see(tensor, str(func))
        return result

    def settle(self, engine: TPEngine) -> None:
        """Checks every registered parameter, and that all suspects so far are parameters."""
        shards = {}
        for tensor, parts in engine.parts():
            shards[_memory(tensor)] = tensor
            if tensor.dim() > 1 and any(part.of == 1 for part in parts):
                raise FullTensor(f"{parts[0].name} is whole on rank {engine.ranks.rank}")
        for name, parameter in engine.named_parameters():
            if _memory(parameter) not in shards:
                raise FullTensor(f"parameter {name} is registered, but no shard of the layout")
        self.largest_shard = max((tuple(t.shape) for t in shards.values()), key=math.prod)
        self._shards = set(shards)
        for tensor, origin in self._suspects:
            self._judge(tensor, origin, self._shards)
        self._suspects.clear()

    def summary(self) -> dict[str, Any]:
        """What was seen, for the report."""
        return {"tensors_seen": self.tensors_seen, "largest_shard": list(self.largest_shard)}

    def _see(self, tensor: Tensor, origin: str) -> None:
        self.tensors_seen += 1
        if tuple(tensor.shape) not in self.forbidden or not tensor.is_floating_point():
            return
        if self._shards is None:
            self._suspects.append((tensor, origin))  # held, so that its memory isn't given again
        else:
            self._judge(tensor, origin, self._shards)

    def _judge(self, tensor: Tensor, origin: str, shards: set[int]) -> None:
        if _memory(tensor) not in shards:
            whose = self.forbidden[tuple(tensor.shape)]
            raise FullTensor(f"{origin} made a {list(tensor.shape)}, the full shape of {whose}")


def _memory(tensor: Tensor) -> int:
    """The address of the storage under a tensor, the same for all its views."""
    address: int = tensor.untyped_storage().data_ptr()
    return address
