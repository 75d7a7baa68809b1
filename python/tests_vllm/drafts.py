"""A model and its draft, real vLLM classes both, on one rank of a faked tensor-parallel group, as vLLM's own proposer
joins them: and what is published for them."""

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from vllm.config import (
    DeviceConfig,
    ModelConfig,
    ParallelConfig,
    SpeculativeConfig,
    VllmConfig,
    set_current_vllm_config,
)
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer

from weightcast.adapters.catalog import Catalog, Entry
from weightcast.adapters.vllm import ranks

from .configs import config
from .engine import register, spread
from .rules import Rules


@dataclass(frozen=True)
class Kind:
    """A way of guessing: vLLM's name of it, both configs (None: the draft is in the model's checkpoint), and what is
    published, the draft's tensors with `draft.` before their names."""

    method: str
    config: dict[str, Any]
    draft: dict[str, Any] | None
    classes: tuple[str, ...]
    catalog: Catalog
    #: Tensors of the draft that are copies of the model's.
    copies: Mapping[str, str] = field(default_factory=dict)


#: Sizes for which vLLM has kernels on CPUs.
SIZES = {"hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 300}


def llama(**sizes: Any) -> dict[str, Any]:
    return config("llama", random.Random("draft")) | SIZES | sizes


def kind(name: str, directory: Path) -> Kind:
    """`draft_model`, `eagle`, `eagle3`, `mimo`, `deepseek` or `glm4`."""
    directory.mkdir(parents=True, exist_ok=True)
    return KINDS[name](directory)


def _draft_model(directory: Path) -> Kind:
    target, draft = llama(), llama(intermediate_size=128, num_hidden_layers=1, tie_word_embeddings=True)
    own = Rules(draft, directory).catalog()
    return Kind("draft_model", target, draft, (), _both(target, own, directory))


def _eagle(directory: Path) -> Kind:
    target = llama(tie_word_embeddings=False)
    draft = target | {"num_hidden_layers": 1}
    hidden = draft["hidden_size"]
    own = _layer(draft, directory, "layers.0.") | {"fc.weight": Entry((hidden, 2 * hidden), "BF16")}
    own.pop("layers.0.input_layernorm.weight")
    listed = _both(target, own, directory)
    one, copy = "model.embed_tokens.weight", "draft.embed_tokens.weight"
    listed[copy] = listed[one]
    return Kind("eagle", target, draft, ("EagleLlamaForCausalLM",), listed, {copy: one})


def _eagle3(directory: Path) -> Kind:
    # vLLM takes hidden states of layers 2, 4 and 5 of 8: of fewer layers, two of the three are one.
    target = llama(tie_word_embeddings=False, num_hidden_layers=8)
    draft = target | {"num_hidden_layers": 1, "draft_vocab_size": 200}
    hidden = draft["hidden_size"]
    own = _layer(draft, directory, "midlayer.")
    for name in [n for n in own if n.split(".")[-2] in ("q_proj", "k_proj", "v_proj")]:
        rows, columns = own[name].shape
        own[name] = Entry((rows, 2 * columns), "BF16")
    own |= {
        "midlayer.hidden_norm.weight": Entry((hidden,), "BF16"),
        "fc.weight": Entry((hidden, 3 * hidden), "BF16"),
        "norm.weight": Entry((hidden,), "BF16"),
        "lm_head.weight": Entry((200, hidden), "BF16"),
        "d2t": Entry((200,), "I64"),
        "t2d": Entry((300,), "BOOL"),
    }
    return Kind("eagle3", target, draft, ("Eagle3LlamaForCausalLM",), _both(target, own, directory))


def _mimo(directory: Path) -> Kind:
    dense = config("qwen2", random.Random("mimo")) | SIZES | {"tie_word_embeddings": False}
    target = dense | {"architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1}
    hidden, head = target["hidden_size"], "model.mtp_layers.0."
    listed = Rules(dense, directory).catalog()
    listed |= {
        f"{head}{name.removeprefix('model.layers.0.')}": entry
        for name, entry in listed.items()
        if name.startswith("model.layers.0.")
    }
    norms = ("token_layernorm", "hidden_layernorm", "final_layernorm")
    listed |= {f"{head}{norm}.weight": Entry((hidden,), "BF16") for norm in norms}
    listed[f"{head}input_proj.weight"] = Entry((hidden, 2 * hidden), "BF16")
    return Kind("mtp", target, None, ("MiMoMTPModel",), listed)


def _deepseek(directory: Path) -> Kind:
    return _experts("deepseek_v3", "DeepSeekMTPModel", directory)


def _glm4(directory: Path) -> Kind:
    return _experts("glm4_moe", "Glm4MoeMTPModel", directory)


def _experts(family: str, architecture: str, directory: Path) -> Kind:
    target = config(family, random.Random("draft")) | {"num_nextn_predict_layers": 1}
    listed, head = Rules(target, directory).catalog(draft=True), f"model.layers.{target['num_hidden_layers']}."
    copies = {
        f"{head}embed_tokens.weight": "model.embed_tokens.weight",
        f"{head}shared_head.head.weight": "lm_head.weight",
    }
    return Kind("mtp", target, None, (architecture,), listed, copies)


KINDS = {
    "draft_model": _draft_model,
    "eagle": _eagle,
    "eagle3": _eagle3,
    "mimo": _mimo,
    "deepseek": _deepseek,
    "glm4": _glm4,
}


def _both(target: dict[str, Any], own: Catalog, directory: Path) -> Catalog:
    return Rules(target, directory).catalog() | {f"draft.{name}": entry for name, entry in own.items()}


def _layer(draft: dict[str, Any], directory: Path, place: str) -> Catalog:
    """A layer as a checkpoint has it, with another beginning of its names."""
    first, listed = "model.layers.0.", Rules(draft, directory).catalog()
    return {place + n.removeprefix(first): entry for n, entry in listed.items() if n.startswith(first)}


class Pair(nn.Module):
    """A model and its draft, as an engine has them: what they share they share."""

    def __init__(self, kind: Kind, directory: Path, *, tp: int = 1, rank: int = 0) -> None:
        super().__init__()
        self.kind, self.vllm_config = kind, _config(kind, directory)
        parallel = self.vllm_config.parallel_config
        # Set afterwards: vLLM would look for as many devices.
        parallel.tensor_parallel_size = tp
        spread(tp, 1, rank)
        self.target = self._built(self.vllm_config.model_config)
        self.draft = self._built(self.vllm_config.speculative_config.draft_model_config)
        if kind.method != "draft_model":
            self._share()

    def _built(self, model: ModelConfig) -> nn.Module:
        whole = self.vllm_config
        before, own = torch.get_default_dtype(), whole.model_config
        torch.set_default_dtype(model.dtype)
        try:
            if self.kind.method == "draft_model":
                whole.model_config = model
            with torch.device("cpu"):
                return initialize_model(vllm_config=whole, model_config=model)
        finally:
            torch.set_default_dtype(before)
            whole.model_config = own
            whole.compilation_config.static_forward_context.clear()

    def _share(self) -> None:
        """What vLLM does once both have been loaded."""
        for flag, name in (("has_own_lm_head", "lm_head"), ("has_own_embed_tokens", "embed_tokens")):
            if hasattr(self.draft, flag):
                own = f"draft.{name}.weight"
                setattr(self.draft, flag, own in self.kind.catalog and own not in self.kind.copies)
        proposer: Any = SimpleNamespace(
            model=self.draft, vllm_config=self.vllm_config, use_local_argmax_reduction=False
        )
        SpecDecodeBaseProposer._maybe_share_embeddings(proposer, self.target)
        SpecDecodeBaseProposer._maybe_share_lm_head(proposer, self.target)

    def load(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """What an engine does with the checkpoints of both."""
        every = dict(tensors)
        own = {n.removeprefix("draft."): t for n, t in every.items() if n.startswith("draft.")}
        left = {n: t for n, t in every.items() if not n.startswith("draft.")}
        self.target.load_weights(left.items())
        self.draft.load_weights((own or left).items())


def _config(kind: Kind, directory: Path) -> VllmConfig:
    for architecture in (*kind.config["architectures"], *kind.classes):
        register(architecture)
    for name, content in (("target", kind.config), ("own", kind.draft)):
        (directory / name).mkdir(exist_ok=True, parents=True)
        if content is not None:
            (directory / name / "config.json").write_text(json.dumps(content))
    model = ModelConfig(
        model=str(directory / "target"),
        tokenizer=str(directory / "target"),
        skip_tokenizer_init=True,
        dtype="bfloat16",
        enforce_eager=True,
        max_model_len=64,
    )
    parallel = ParallelConfig()
    speculative = SpeculativeConfig(
        method=kind.method,
        model=None if kind.draft is None else str(directory / "own"),
        num_speculative_tokens=1,
        target_model_config=model,
        target_parallel_config=parallel,
    )
    whole = VllmConfig(
        model_config=model,
        parallel_config=parallel,
        device_config=DeviceConfig("cpu"),
        speculative_config=speculative,
    )
    with set_current_vllm_config(whole):
        ranks.initialise()
    return whole
