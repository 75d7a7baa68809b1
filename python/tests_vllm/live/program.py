"""A program: vLLM's `LLM` in this process, in one of its own, or on two tensor-parallel workers, follows a
trainer over our weight-transfer backend. Prints what it generated as JSON.

    program.py in_process|separate|tp2
"""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0" if sys.argv[1] == "in_process" else "1",
}

sys.path.insert(0, str(Path(__file__).parents[2]))

import tests_vllm  # noqa: F401  the CPU's kernels, before vLLM chooses them

# isort: split

from vllm import LLM, SamplingParams

import weightcast as wc
from tests_vllm.live.weights import Held, Model
from weightcast.adapters.vllm import LocalEngine, TrainerInfo, WeightcastEngine, WeightcastTrainer

#: Long enough for a block that vLLM keeps in its prefix cache.
PROMPT = [1 + at % 50 for at in range(40)]
BLOCK = 32


class Plain(LocalEngine):
    """Takes no orders: its trainer goes through vLLM's calls."""

    @property
    def order(self) -> None:
        raise AttributeError("order")


def engine(directory: Path, **options: object) -> LLM:
    return LLM(
        model=str(directory), skip_tokenizer_init=True, enforce_eager=True, dtype="bfloat16",
        max_model_len=64, seed=0, disable_log_stats=True, block_size=BLOCK, enable_prefix_caching=True, **options,
    )  # fmt: skip


def generate(llm: LLM) -> list:
    """What it says to the same prompt, twice; the second time a block of the prompt comes from the cache."""
    first, again = ask(llm), ask(llm)
    assert again[2] == BLOCK, "vLLM's prefix cache is in use"
    return [first, again]


def ask(llm: LLM) -> list:
    """Tokens, their log probabilities, and how many tokens of the prompt came from the cache."""
    params = SamplingParams(max_tokens=12, temperature=0, detokenize=False, logprobs=1)
    (out,) = llm.generate([{"prompt_token_ids": PROMPT}], params, use_tqdm=False)
    said = out.outputs[0]
    likely = [max(p.logprob for p in at.values()) for at in said.logprobs]
    return [list(said.token_ids), likely, out.num_cached_tokens]


def follow(llm: LLM, model: Model, client: LocalEngine, versions: Sequence[int], server: str, said: dict) -> None:
    """What the engine says once it follows a trainer with these weights."""
    held = Held(model.values(0))
    sync = WeightcastTrainer.trainer_init(TrainerInfo(rank=0, server=server), client=client, source=held)
    for version in versions:
        held.become(model.values(version))
        number = sync.send_weights()
        said[f"updated {version}"] = generate(llm)
        if hasattr(llm, "get_weight_version"):  # from vLLM 0.27 on
            assert llm.get_weight_version() == str(number)
    sync.shutdown()


def main(way: str) -> None:
    model = Model(Path(tempfile.mkdtemp()))
    spread = {"tensor_parallel_size": 2} if way == "tp2" else {}
    said = {}
    for version in (2, 3):
        # What an engine says that has loaded the checkpoint itself.
        model.save(version)
        fresh = engine(model.directory, **spread)
        said[f"fresh {version}"] = generate(fresh)
        end(fresh)
    model.save(1)
    with wc.serve() as server:
        llm = engine(model.directory, weight_transfer_config={"backend": "weightcast"}, **spread)
        said["loaded"] = generate(llm)
        follow(llm, model, LocalEngine(llm), (2, 3), server.address, said)
        follow(llm, model, Plain(llm), (1,), server.address, said)
        # As trainers call the worker's class in older vLLM; and the engine takes orders.
        group = WeightcastEngine.trainer_init({"client": LocalEngine(llm), "server": server.address})
        WeightcastEngine.trainer_send_weights(iter(model.values(2).items()), {"group": group})
        said["handed out 2"] = generate(llm)
        group.destroy()
        end(llm)
    print(json.dumps(said))


def end(llm: LLM) -> None:
    llm.llm_engine.engine_core.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
    sys.stdout.flush()
