"""A program: a whole vLLM engine on the CPU, updated by weightcast, must generate what it generates
when it loads the same checkpoint itself. Where vLLM has packed linear weights, updates go through its
loader. Prints what it found as JSON."""

import json
import os
import random
import sys
import tempfile
from pathlib import Path

os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}

sys.path.insert(0, str(Path(__file__).parents[1]))

import tests_vllm  # noqa: F401  the CPU's kernels, before vLLM chooses them

# isort: split

import torch
from safetensors.torch import save_file
from vllm import LLM, SamplingParams

import weightcast as wc
from tests_vllm.configs import config
from tests_vllm.engine import register
from tests_vllm.rules import Rules
from tests_vllm.trainer import checkpoint
from weightcast.adapters import vllm
from weightcast.adapters.catalog import Catalog, catalog_of
from weightcast.adapters.live import LiveLayout

#: Sizes for which vLLM has kernels on CPUs.
FAMILIES = {
    "qwen2": {"hidden_size": 256, "num_attention_heads": 8},
    "qwen3_moe": {"hidden_size": 256, "head_dim": 32, "moe_intermediate_size": 64},
}


def weights(catalog: Catalog, version: int) -> dict[str, torch.Tensor]:
    """Small values, so that layers neither saturate nor vanish."""
    values = checkpoint(catalog, version)
    return {
        name: torch.ones_like(t) if name.endswith("norm.weight") else (t * 0.1).to(t.dtype)
        for name, t in values.items()
    }


def generate(llm: LLM) -> list:
    params = SamplingParams(max_tokens=12, temperature=0, detokenize=False, logprobs=1)
    (out,) = llm.generate([{"prompt_token_ids": [1, 2, 3]}], params, use_tqdm=False)
    llm.reset_prefix_cache()
    said = out.outputs[0]
    return [list(said.token_ids), [max(p.logprob for p in at.values()) for at in said.logprobs]]


def main(family: str, dtype: str) -> None:
    drawn = config(family, random.Random(family)) | FAMILIES[family]
    register(drawn["architectures"][0])
    directory = Path(tempfile.mkdtemp())
    catalog = Rules(drawn, directory).catalog()
    save_file(weights(catalog, 1), directory / "model.safetensors")
    llm = LLM(
        model=str(directory), skip_tokenizer_init=True, enforce_eager=True, dtype=dtype,
        max_model_len=64, seed=0, disable_log_stats=True,
    )
    loaded = generate(llm)
    models = []
    llm.apply_model(models.append)

    def read() -> LiveLayout:
        return vllm.read(
            models[0],
            {f"policy.{name}": entry for name, entry in catalog_of(directory).items()},
            vllm_config=llm.llm_engine.vllm_config,
            rename=lambda name: name.removeprefix("policy."),
        )

    held = weights(catalog, 2)
    listed = wc.Layout()
    for name, tensor in held.items():
        listed.add(tensor, f"policy.{name}")
    with (
        wc.serve() as server,
        wc.open("policy", wc.Replica("trainer"), role="trainer", epoch="new", server=server.address)
        as trainer,
        wc.open("policy", wc.Replica("rollout"), server=server.address) as rollout,
    ):
        trainer.register(listed)
        said = []
        for version in (2, 1):
            # The second time over what an update has left, as an engine that joins again does.
            live = read()
            rollout.register(live.layout(stage=True))
            for name, tensor in weights(catalog, version).items():
                held[name].copy_(tensor)
            with trainer.published(version=10 - version):
                assert rollout.update().changed
                live.finish()
            said.append(generate(llm))
            rollout.unpublish()
            rollout.unregister()
    same = {"loaded": loaded, "other": said[0], "back": said[1]}
    # vLLM empties the parameters that it has packed.
    packed = any(p.numel() == 0 for p in models[0].parameters())
    print(json.dumps({"kind": type(live).__name__, "packed": packed, "derived": live.derived} | same))


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
