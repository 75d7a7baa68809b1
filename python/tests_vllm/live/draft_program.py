"""A program: vLLM's `LLM` in this process, which guesses tokens with a draft, follows a trainer that publishes the
checkpoints of both. Prints as JSON what it generated and what the draft guessed, and the same of engines that have
loaded the checkpoints from disk.

    draft_program.py draft_model|eagle|eagle3|mimo
"""

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}

sys.path.insert(0, str(Path(__file__).parents[2]))

import tests_vllm  # noqa: F401  the CPU's kernels, before vLLM chooses them

# isort: split

import torch
from safetensors.torch import save_file
from vllm import LLM, SamplingParams

import weightcast as wc
from tests_vllm.drafts import Kind, kind
from tests_vllm.engine import register
from tests_vllm.live.weights import Held, Values
from tests_vllm.trainer import checkpoint
from weightcast.adapters.vllm import LocalEngine, TrainerInfo, WeightcastTrainer

#: Long enough for a block that vLLM keeps in its prefix cache. (With MTP and EAGLE it takes all but the last block: none here.)
PROMPT = [1 + at % 50 for at in range(40)]
BLOCK = 32


def values(of: Kind, version: int) -> Values:
    """Checkpoints of small values: layers neither saturate nor vanish."""
    drawn = checkpoint(of.catalog, version)
    drawn |= {copy: drawn[one].clone() for copy, one in of.copies.items()}
    return {name: _small(name, tensor, version) for name, tensor in drawn.items()}


def _small(name: str, tensor: torch.Tensor, version: int) -> torch.Tensor:
    if name.endswith(("norm.weight", "norm.bias")):
        return torch.ones_like(tensor)
    if name.endswith("d2t"):
        return torch.full_like(tensor, version)
    return (tensor * 0.1).to(tensor.dtype)


def engine(of: Kind, directory: Path, version: int, **options: object) -> LLM:
    """An engine that has loaded the checkpoints of a version."""
    target, own, every = directory / "target", directory / "own", values(of, version)
    for place, config in ((target, of.config), (own, of.draft)):
        place.mkdir(exist_ok=True)
        (place / "config.json").write_text(json.dumps(config))
    save_file({n: t for n, t in every.items() if not n.startswith("draft.")}, target / "model.safetensors")
    save_file(
        {n.removeprefix("draft."): t for n, t in every.items() if n.startswith("draft.")},
        own / "model.safetensors",
    )
    guess: dict[str, Any] = {"method": of.method, "num_speculative_tokens": 1 if of.draft is None else 2}
    if of.draft is not None:
        guess["model"] = str(own)
    return LLM(
        model=str(target), skip_tokenizer_init=True, enforce_eager=True, dtype="bfloat16",
        max_model_len=64, seed=0, disable_log_stats=True, speculative_config=guess, block_size=BLOCK,
        enable_prefix_caching=True, **options,
    )  # fmt: skip


def generate(llm: LLM) -> dict[str, Any]:
    """Tokens, their log probabilities, what the draft guessed, a digest of the draft's parameters, and how many
    tokens of the prompt came from the cache."""
    guessed: list[list[list[int]]] = []
    [drafter] = llm.collective_rpc(lambda worker: worker.model_runner.drafter)
    propose = drafter.propose

    def noted(*arguments: Any, **named: Any) -> torch.Tensor:
        found = propose(*arguments, **named)
        guessed.append(found.tolist())
        return found

    drafter.propose = noted
    params = SamplingParams(max_tokens=12, temperature=0, detokenize=False, logprobs=1)
    (out,) = llm.generate([{"prompt_token_ids": PROMPT}], params, use_tqdm=False)
    drafter.propose = propose
    said = out.outputs[0]
    digest = hashlib.sha256()
    for name, parameter in sorted(drafter.model.named_parameters()):
        digest.update(f"{name} {tuple(parameter.shape)}".encode())
        digest.update(parameter.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return {
        "tokens": list(said.token_ids),
        "logprobs": [max(p.logprob for p in at.values()) for at in said.logprobs],
        "guessed": guessed,
        "parameters": digest.hexdigest(),
        "cached": out.num_cached_tokens,
    }


def started(of: Kind, directory: Path, server: str) -> dict[str, Any]:
    """What an engine says that has version 2 from its peers."""
    listed = wc.Layout()
    for name, tensor in values(of, 2).items():
        listed.add(tensor, name)
    peer = wc.Replica("peer")
    with wc.open("policy", peer, role="trainer", epoch="new", server=server) as trainer:
        trainer.register(listed)
        with trainer.published(version=2):
            told = {"load_format": "weightcast", "model_loader_extra_config": {"server": server}}
            llm = engine(of, directory, 1, **told)
        found = generate(llm)
    end(llm)
    return found


def end(llm: LLM) -> None:
    llm.llm_engine.engine_core.shutdown()


def main(way: str) -> None:
    place = Path(tempfile.mkdtemp())
    of = kind(way, place)
    for architecture in (*of.config["architectures"], *of.classes):
        register(architecture)
    said = {}
    for version in (2, 3):
        fresh = engine(of, place, version)
        said[f"fresh {version}"] = generate(fresh)
        end(fresh)
    with wc.serve() as server:
        llm = engine(of, place, 1, weight_transfer_config={"backend": "weightcast"})
        said["loaded"] = generate(llm)
        held = Held(values(of, 2))
        sync = WeightcastTrainer.trainer_init(
            TrainerInfo(rank=0, server=server.address), client=LocalEngine(llm), source=held
        )
        for version in (2, 3, 1):
            held.become(values(of, version))
            sync.send_weights()
            said[f"updated {version}"] = generate(llm)
        sync.shutdown()
        end(llm)
        said["started 2"] = started(of, place, server.address)
    print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1])
    sys.stdout.flush()
