"""A program: a whole vLLM engine on the CPU, updated by weightcast, must generate what it generates
when it loads the same checkpoint itself. vLLM packs linear weights there, so that updates go through
its loader. Prints what it found as JSON."""

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
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}

import torch
import weightcast as wc
from safetensors.torch import save_file
from vllm import LLM, SamplingParams
from vllm.model_executor.models import ModelRegistry
from vllm.model_executor.models.qwen2 import Qwen2ForCausalLM
from weightcast.adapters import vllm
from weightcast.adapters.catalog import catalog_of

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 256,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 200,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


def weights(version: int) -> dict[str, torch.Tensor]:
    from transformers import AutoModelForCausalLM, Qwen2Config

    torch.manual_seed(version)
    config = Qwen2Config(**CONFIG, initializer_range=0.2)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    return {name: t.detach().contiguous() for name, t in model.state_dict().items()}


def generate(llm: LLM) -> list:
    params = SamplingParams(max_tokens=12, temperature=0, detokenize=False, logprobs=1)
    (out,) = llm.generate([{"prompt_token_ids": [1, 2, 3]}], params, use_tqdm=False)
    llm.reset_prefix_cache()
    said = out.outputs[0]
    return [list(said.token_ids), [max(p.logprob for p in at.values()) for at in said.logprobs]]


def main() -> None:
    # A registered class is inspected in this process.
    ModelRegistry.register_model("Qwen2ForCausalLM", Qwen2ForCausalLM)
    directory = Path(tempfile.mkdtemp())
    (directory / "config.json").write_text(json.dumps(CONFIG))
    save_file(weights(1), directory / "model.safetensors")
    llm = LLM(
        model=str(directory), skip_tokenizer_init=True, enforce_eager=True, dtype="bfloat16",
        max_model_len=64, seed=0, disable_log_stats=True,
    )
    loaded = generate(llm)
    models = []
    llm.apply_model(models.append)
    live = vllm.read(
        models[0],
        {f"policy.{name}": entry for name, entry in catalog_of(directory).items()},
        vllm_config=llm.llm_engine.vllm_config,
        rename=lambda name: name.removeprefix("policy."),
    )
    held = weights(2)
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
        rollout.register(live.layout(stage=True))
        said = []
        for version in (2, 1):
            for name, tensor in weights(version).items():
                held[name].copy_(tensor)
            with trainer.published(version=10 - version):
                assert rollout.update().changed
                live.finish()
            said.append(generate(llm))
    same = {"loaded": loaded, "other": said[0], "back": said[1]}
    print(json.dumps({"kind": type(live).__name__, "derived": live.derived} | same))


if __name__ == "__main__":
    main()
    sys.stdout.flush()
