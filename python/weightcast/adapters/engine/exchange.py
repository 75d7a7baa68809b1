"""What the workers of one engine tell each other."""

from typing import Any

import torch

#: Bytes that a text may have.
SIZE = 8192


def exchange(text: str, group: Any) -> list[str]:
    """The texts of all ranks of a process group on the CPU, in rank order. All ranks call. Texts travel as
    bytes: an exchange of objects would pickle them. Raises `ValueError` for more than `SIZE` bytes."""
    data = bytearray(text.encode())
    if len(data) > SIZE:
        raise ValueError(f"a text of {len(data)} bytes; at most {SIZE} are exchanged")
    own = torch.zeros(SIZE, dtype=torch.uint8)
    if data:
        own[: len(data)] = torch.frombuffer(data, dtype=torch.uint8)
    parts = [torch.empty_like(own) for _ in range(torch.distributed.get_world_size(group))]
    torch.distributed.all_gather(parts, own, group=group)
    return [bytes(part.tolist()).rstrip(b"\0").decode() for part in parts]
