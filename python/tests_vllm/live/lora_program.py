"""A program: vLLM's `LLM` in this process, or on two tensor-parallel workers, takes versions of two LoRA adapters
that their trainers send. Prints as JSON what it generated, and what an engine generates that has loaded the
adapters from directories.

    lora_program.py in_process|tp2
"""

import json
import os
import sys
import tempfile
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
from vllm.lora.request import LoRARequest

import weightcast as wc
from tests_vllm.live.adapters import RANK, become, peft_model, saved
from tests_vllm.live.weights import Held, Model
from weightcast.adapters.vllm import Adapter, LocalEngine, TrainerInfo, WeightcastTrainer

#: Long enough for blocks that vLLM keeps in its prefix cache, which a new version drops.
PROMPT = [1 + at % 50 for at in range(40)]
BLOCK = 32


def engine(directory: Path, **options: object) -> LLM:
    return LLM(
        model=str(directory), skip_tokenizer_init=True, enforce_eager=True, dtype="bfloat16",
        max_model_len=64, seed=0, disable_log_stats=True, block_size=BLOCK, enable_prefix_caching=True,
        enable_lora=True, max_loras=2, max_lora_rank=RANK, **options,
    )  # fmt: skip


def generate(llm: LLM, lora: LoRARequest | None) -> list:
    """Tokens, their log probabilities, and how many tokens of the prompt came from the cache."""
    params = SamplingParams(max_tokens=12, temperature=0, detokenize=False, logprobs=1)
    (out,) = llm.generate([{"prompt_token_ids": PROMPT}], params, use_tqdm=False, lora_request=lora)
    said = out.outputs[0]
    likely = [max(p.logprob for p in at.values()) for at in said.logprobs]
    return [list(said.token_ids), likely, out.num_cached_tokens]


def fresh(model: Model, directory: Path, options: dict) -> dict:
    """What an engine says that loads each version from a directory."""
    held, llm = peft_model(model), engine(model.directory, **options)
    said = {"base": generate(llm, None)}
    for version in (1, 2, 3):
        path = saved(held, version, directory / str(version))
        said[str(version)] = generate(llm, LoRARequest(f"fresh-{version}", version, str(path)))
    llm.llm_engine.engine_core.shutdown()
    return said


class Sender:
    """The trainer of one adapter."""

    def __init__(self, model: Model, name: str, server: str, client: LocalEngine) -> None:
        self.model, self.name, self.client = peft_model(model), name, client
        self.adapter = Adapter(self.model)
        self.sync = WeightcastTrainer.trainer_init(
            TrainerInfo(rank=0, server=server, model=name), client=client, source=self.adapter
        )

    def send(self, version: int) -> None:
        become(self.model, version)
        self.sync.send_weights()


def refused(call) -> str:
    try:
        call()
    except Exception as error:
        return str(error)
    return "not refused"


def main(way: str) -> None:
    options = {"tensor_parallel_size": 2} if way == "tp2" else {}
    place = Path(tempfile.mkdtemp())
    model = Model(place / "model")
    model.save(2)
    expected = {f"{key} on the next base": value for key, value in fresh(model, place, options).items()}
    model.save(1)
    expected, said = expected | fresh(model, place, options), {}
    with wc.serve() as server:
        llm = engine(model.directory, weight_transfer_config={"backend": "weightcast"}, **options)
        client = LocalEngine(llm)

        def hear(what: str, lora: str | None) -> None:
            said[what] = generate(llm, lora and client.lora_request(lora))

        one, two = (Sender(model, name, server.address, client) for name in ("one", "two"))
        hear("base", None)
        one.send(1)
        two.send(2)
        hear("one 1", "one")
        hear("one 1 again", "one")
        hear("two 2", "two")
        kept = client.lora_request("one")
        one.send(3)
        said["one 3 by a request of 1"] = generate(llm, kept)
        hear("one 3", "one")
        hear("one 3 again", "one")
        hear("two 2 again", "two")
        hear("base again", None)

        # Trained on another base: refused before anything changes.
        one.adapter.base = 7
        said["refused"] = refused(lambda: one.send(2))
        hear("one still 3", "one")
        one.adapter.base = None

        # The base goes to another version: not while adapters of the former one are loaded.
        held = Held(model.values(2))
        base = WeightcastTrainer.trainer_init(
            TrainerInfo(rank=0, server=server.address), client=client, source=held
        )
        said["base refused"] = refused(base.send_weights)
        for name in ("one", "two"):
            client.slot(name).unload()
        base.send_weights()
        hear("base on the next base", None)
        said["old base refused"] = refused(lambda: one.send(1))
        one.adapter.base = base.version
        one.send(1)
        hear("one 1 on the next base", "one")
    llm.llm_engine.engine_core.shutdown()
    print(json.dumps({"expected": expected, "said": said}))


if __name__ == "__main__":
    main(sys.argv[1])
    sys.stdout.flush()
