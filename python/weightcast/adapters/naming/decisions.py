"""Published tensors that engines leave out on purpose, whatever the model."""

from torch import nn

#: Why a model does not take the heads in its checkpoint that guess tokens.
DRAFT_LAYER = "a draft layer, which another model loads"


def left_out(model: nn.Module) -> dict[str, str]:
    """Patterns of names, and why a model of this config does not take them."""
    reasons = {"*rotary_emb.inv_freq": "rotary tables, which the engine computes"}
    config = getattr(model, "config", None)
    config = getattr(config, "text_config", config)
    if getattr(config, "tie_word_embeddings", False):
        reasons["lm_head.weight"] = "the head is tied to the embedding"
    layers = getattr(config, "num_hidden_layers", None)
    for draft in range(getattr(config, "num_nextn_predict_layers", None) or 0):
        if layers is not None:
            reasons[f"model.layers.{layers + draft}.*"] = DRAFT_LAYER
    return reasons
