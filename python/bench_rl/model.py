"""The model: its tensors, who holds which rows of them, and what they hold in each version.

Nothing is trained. A version's content follows from its number, so every process can make it, and say what
any other process should hold.
"""

import hashlib
import zlib
from dataclasses import dataclass

import torch
from torch import Tensor

HEAD = 64
"""Size of an attention head."""
ELEMENT = 2
"""Bytes of an element: BF16."""
MIXER = -1640531535
"""Odd, so that no two places of a tensor have one product (Knuth's multiplicative hash, as 32 bits)."""
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Piece:
    """Rows of a tensor that one process holds: from `start` on, `rows` of `shape[0]`."""

    name: str
    shape: tuple[int, ...]
    start: int
    rows: int

    @property
    def local(self) -> tuple[int, ...]:
        """The shape of these rows."""
        return (self.rows, *self.shape[1:])

    @property
    def whole(self) -> bool:
        """Whether they are all of the tensor."""
        return self.rows == self.shape[0]

    @property
    def row(self) -> int:
        """Elements of a row."""
        return elements(self.shape[1:])


def elements(shape: tuple[int, ...]) -> int:
    """How many there are in a tensor of this shape."""
    count = 1
    for size in shape:
        count *= size
    return count


def qwen(layers: int, hidden: int, vocab: int) -> Shapes:
    """The tensors of a model like Qwen2.5, with tied embeddings."""
    keys, inner = max(1, hidden // HEAD // 7) * HEAD, (hidden * 11 // 2) // HEAD * HEAD
    shapes: Shapes = {"model.embed_tokens.weight": (vocab, hidden)}
    for layer in range(layers):
        at = f"model.layers.{layer}"
        for name, rows in ("q", hidden), ("k", keys), ("v", keys):
            shapes[f"{at}.self_attn.{name}_proj.weight"] = (rows, hidden)
            shapes[f"{at}.self_attn.{name}_proj.bias"] = (rows,)
        shapes[f"{at}.self_attn.o_proj.weight"] = (hidden, hidden)
        for name, shape in ("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner)):
            shapes[f"{at}.mlp.{name}_proj.weight"] = shape
        shapes[f"{at}.input_layernorm.weight"] = (hidden,)
        shapes[f"{at}.post_attention_layernorm.weight"] = (hidden,)
    shapes["model.norm.weight"] = (hidden,)
    return shapes


def size(shapes: Shapes) -> int:
    """Bytes of the model."""
    return ELEMENT * sum(elements(shape) for shape in shapes.values())


def share(shapes: Shapes, index: int, of: int, vectors: bool) -> list[Piece]:
    """What process `index` of so many holds: its rows, as torch cuts unevenly. Without `vectors`, of matrices
    alone: a tensor-parallel engine has all of a norm on each rank."""
    pieces = []
    for name, shape in shapes.items():
        cut = of if vectors or len(shape) > 1 else 1
        each = -(-shape[0] // cut)
        start = min(each * (index if cut > 1 else 0), shape[0])
        pieces.append(Piece(name, shape, start, min(each, shape[0] - start)))
    return pieces


def content(piece: Piece, version: int) -> Tensor:
    """What these rows hold in a version, as 16-bit numbers: others in each version and tensor."""
    first = piece.start * piece.row
    places = torch.arange(first, first + piece.rows * piece.row, dtype=torch.int32)
    seed = zlib.crc32(f"{piece.name}/{version}".encode()) - (1 << 31)
    return places.mul_(MIXER).add_(seed).bitwise_right_shift_(9).to(torch.int16)  # products wrap


class Memory:
    """The rows that one process holds, each piece in a tensor of its own."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces
        self.tensors = {p.name: torch.zeros(p.local, dtype=torch.bfloat16) for p in pieces}

    def fill(self, version: int) -> None:
        """Makes it a version's, as an optimizer's step would."""
        for piece in self.pieces:
            bits(self.tensors[piece.name]).copy_(content(piece, version))

    def take(self, other: "Memory") -> None:
        """Copies all of another memory of the same pieces."""
        for name, tensor in self.tensors.items():
            tensor.copy_(other.tensors[name])

    def digests(self) -> dict[str, str]:
        """Of each tensor."""
        return {piece.name: digest(bits(self.tensors[piece.name])) for piece in self.pieces}

    @property
    def bytes(self) -> int:
        """Of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


def expected(pieces: list[Piece], version: int) -> dict[str, str]:
    """The digests of these pieces in a version."""
    return {piece.name: digest(content(piece, version)) for piece in pieces}


def digest(numbers: Tensor) -> str:
    """Of the bytes."""
    return hashlib.blake2b(numbers.numpy().tobytes(), digest_size=8).hexdigest()


def bits(tensor: Tensor) -> Tensor:
    """The same memory as a row of 16-bit numbers."""
    return tensor.view(torch.int16).view(-1)


def octets(tensor: Tensor) -> Tensor:
    """The same memory as a row of bytes, which collectives take of any type."""
    return tensor.view(torch.uint8).view(-1) if tensor.ndim else tensor.reshape(1).view(torch.uint8)
