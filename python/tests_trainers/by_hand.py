"""A Megatron checkpoint made into a Hugging Face one by gathering and reshaping: no line of weightcast."""

import re

import torch

Ranks = list[tuple[dict[str, int], dict[str, torch.Tensor]]]


def convert(ranks: Ranks, *, heads: int, groups: int, vocab: int, layers_per_stage: list[int], experts: int = 0,
            mlp: str = "mlp") -> dict[str, torch.Tensor]:
    """The published tensors of what ranks have, each given with its places in Megatron's groups."""
    converted: dict[str, torch.Tensor] = {}
    for stage, count in enumerate(layers_per_stage):
        held = [(at, tensors) for at, tensors in ranks if at["pp"] == stage]
        first = sum(layers_per_stage[:stage])
        by_tp = _distinct(held, "tp")
        if "embedding.word_embeddings.weight" in by_tp[0]:
            converted["model.embed_tokens.weight"] = _rows(by_tp, "embedding.word_embeddings.weight")[:vocab]
        for local in range(count):
            converted |= _layer(held, f"decoder.layers.{local}.", f"model.layers.{first + local}.", heads, groups, experts)
        if "decoder.final_layernorm.weight" in by_tp[0]:
            converted["model.norm.weight"] = _same(held, "decoder.final_layernorm.weight")
        if "output_layer.weight" in by_tp[0]:
            head = _rows(by_tp, "output_layer.weight")[:vocab]
            if "model.embed_tokens.weight" in converted and torch.equal(head, converted["model.embed_tokens.weight"]):
                continue  # tied
            converted["lm_head.weight"] = head
    return converted


def _layer(held: Ranks, here: str, there: str, heads: int, groups: int, experts: int) -> dict[str, torch.Tensor]:
    by_tp, out = _distinct(held, "tp"), {}
    if here + "self_attention.linear_kv_down_proj.weight" in by_tp[0]:
        out |= _latent_attention(held, here + "self_attention.", there + "self_attn.")
    out[there + "input_layernorm.weight"] = _same(held, here + "input_layernorm.weight")
    for end in ("weight", "bias"):
        if (name := f"{here}self_attention.linear_qkv.{end}") in by_tp[0]:
            fused = _rows(by_tp, name)
            size = fused.shape[0] // (heads + 2 * groups)
            grouped = fused.reshape(groups, heads // groups + 2, size, *fused.shape[1:])
            query, key, value = grouped[:, :-2], grouped[:, -2], grouped[:, -1]
            for letter, part in (("q", query), ("k", key), ("v", value)):
                out[f"{there}self_attn.{letter}_proj.{end}"] = part.reshape(-1, *fused.shape[1:])
    out[there + "self_attn.o_proj.weight"] = torch.cat([r[here + "self_attention.linear_proj.weight"] for r in by_tp], 1)
    for letter in "qk":
        if (name := f"{here}self_attention.{letter}_layernorm.weight") in by_tp[0]:
            out[f"{there}self_attn.{letter}_norm.weight"] = _same(held, name)
    out[there + "post_attention_layernorm.weight"] = _same(held, here + "pre_mlp_layernorm.weight")
    if here + "mlp.linear_fc1.weight" in by_tp[0]:
        out |= _mlp(by_tp, here + "mlp.", there + "mlp.")
    if here + "mlp.router.weight" in by_tp[0]:
        out[there + "mlp.gate.weight"] = _same(held, here + "mlp.router.weight")
    if here + "mlp.shared_experts.linear_fc1.weight" in by_tp[0]:
        shared = "shared_expert" if here + "mlp.shared_experts.gate_weight" in by_tp[0] else "shared_experts"
        out |= _mlp(by_tp, here + "mlp.shared_experts.", f"{there}mlp.{shared}.")
        if shared == "shared_expert":
            out[there + "mlp.shared_expert_gate.weight"] = _same(held, here + "mlp.shared_experts.gate_weight")
    if here + "mlp.experts.local_experts.0.linear_fc1.weight" in by_tp[0]:
        places = sorted({at["ep"] for at, _ in held})
        for ep in places:
            by_etp = _distinct([one for one in held if one[0]["ep"] == ep], "etp")
            for local in range(experts // len(places)):
                expert = ep * (experts // len(places)) + local
                out |= _mlp(by_etp, f"{here}mlp.experts.local_experts.{local}.", f"{there}mlp.experts.{expert}.")
    return out


def _latent_attention(held: Ranks, here: str, there: str) -> dict[str, torch.Tensor]:
    """With TransformerEngine: what goes down is alike on all ranks, what goes up is cut by heads."""
    by_tp = _distinct(held, "tp")
    return {
        there + "q_a_proj.weight": _same(held, here + "linear_q_down_proj.weight"),
        there + "q_a_layernorm.weight": _same(held, here + "linear_q_up_proj.layer_norm_weight"),
        there + "q_b_proj.weight": _rows(by_tp, here + "linear_q_up_proj.weight"),
        there + "kv_a_proj_with_mqa.weight": _same(held, here + "linear_kv_down_proj.weight"),
        there + "kv_a_layernorm.weight": _same(held, here + "linear_kv_up_proj.layer_norm_weight"),
        there + "kv_b_proj.weight": _rows(by_tp, here + "linear_kv_up_proj.weight"),
    }


def of_transformer_engine(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same under the names of a local spec: norms apart, experts one by one."""
    renamed = {}
    for name, tensor in tensors.items():
        name = name.replace("self_attention.linear_qkv.layer_norm_", "input_layernorm.")
        name = name.replace("mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm.")
        name = re.sub(r"experts\.(linear_fc[12])\.weight(\d+)", r"experts.local_experts.\2.\1.weight", name)
        renamed[name] = tensor
    return renamed


def _mlp(by_tp: list[dict[str, torch.Tensor]], here: str, there: str) -> dict[str, torch.Tensor]:
    halves = [held[here + "linear_fc1.weight"].chunk(2) for held in by_tp]
    return {
        there + "gate_proj.weight": torch.cat([gate for gate, _ in halves]),
        there + "up_proj.weight": torch.cat([up for _, up in halves]),
        there + "down_proj.weight": torch.cat([held[here + "linear_fc2.weight"] for held in by_tp], 1),
    }


def _distinct(held: Ranks, group: str) -> list[dict[str, torch.Tensor]]:
    """One rank for each place in a group, in order."""
    found = {at[group]: tensors for at, tensors in reversed(held)}
    return [found[place] for place in sorted(found)]


def _rows(by_tp: list[dict[str, torch.Tensor]], name: str) -> torch.Tensor:
    return torch.cat([held[name] for held in by_tp])


def _same(held: Ranks, name: str) -> torch.Tensor:
    """What all ranks have alike."""
    each = [tensors[name] for _, tensors in held]
    assert all(torch.equal(one, each[0]) for one in each), name
    return each[0]
