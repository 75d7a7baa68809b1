"""A rollout in a process of its own, whose tensors lie on the GPU. Reads a command a line, answers with a line
of JSON. A command is a version to update to; with `apart` behind it, by `fetch` and then `install`.

    python -m tests_gpu.rollout SERVER WAY SHAPES.json
"""

import json
import sys
import time
from pathlib import Path

import torch

import weightcast as wc

#: Bytes that are summed up at once: as numbers they take eight times as much.
CHUNK = 1 << 26


def digest(tensors: dict[str, torch.Tensor]) -> list[int]:
    """Of each tensor's bytes, a sum that depends on where each stands; computed on the GPU."""
    places = torch.arange(1, CHUNK + 1, device="cuda") % 65_521
    sums = []
    for tensor in tensors.values():
        chunks = tensor.view(torch.uint8).flatten().split(CHUNK)
        parts = [int((chunk.to(torch.int64) * places[: chunk.numel()]).sum()) for chunk in chunks]
        sums.append(sum(part * (at + 1) for at, part in enumerate(parts)))
    return sums


def made(shapes: dict[str, list[int]], value: float) -> dict[str, torch.Tensor]:
    """Tensors of a model on the GPU."""
    return {
        name: torch.full(shape, value, dtype=torch.bfloat16, device="cuda") for name, shape in shapes.items()
    }


def laid_out(tensors: dict[str, torch.Tensor]) -> wc.Layout:
    """Each tensor whole, under its name."""
    listed = wc.Layout()
    for name, tensor in tensors.items():
        listed.add(tensor, name)
    return listed


def main() -> None:
    """Registers, then obeys."""
    server, way, path = sys.argv[1:]
    tensors = made(json.loads(Path(path).read_text()), -1.0)
    with wc.open("m", wc.Replica("rollout"), server=server, way=way) as handle:
        handle.register(laid_out(tensors))
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            version, *apart = line.split()
            start = time.perf_counter()
            moved = (handle.fetch if apart else handle.update)(int(version), deadline=300)
            fetched = time.perf_counter()
            if apart:
                handle.install()
                torch.cuda.synchronize()
            seconds = {"seconds": fetched - start, "install_s": time.perf_counter() - fetched}
            answer = {"bytes": moved.bytes, "verified": moved.verified, "way": moved.way} | seconds
            print(json.dumps(answer | {"digest": digest(tensors)}), flush=True)


if __name__ == "__main__":
    main()
