"""Models from sizes and from checkpoints, how they write digits, and what trainers hold of them."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from weightcast.examples.rl.alphabet import UNKNOWN, Alphabet, alphabet_of  # noqa: E402
from weightcast.examples.rl.models import ActorCritic, build, config_of  # noqa: E402
from weightcast.examples.rl.settings import LoopSettings  # noqa: E402

TOKENS = torch.tensor([[3, 1, 2, 8, 1]])


@pytest.mark.parametrize("model", ["qwen2", "gpt2"])
def test_a_checkpoint_is_taken_as_it_is(tmp_path, model):
    saved = build(LoopSettings(model=model, seed=5))
    saved.save_pretrained(tmp_path)
    settings = LoopSettings(model=str(tmp_path), train_dtype="bfloat16")
    settings.check()
    loaded = build(settings)
    assert config_of(settings).model_type == model and loaded.dtype == torch.bfloat16
    for name, tensor in saved.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor.to(torch.bfloat16)), name
    assert alphabet_of(settings).encode(torch.tensor([7, 8])).tolist() == [7, 8], "it has no tokenizer"


def test_a_checkpoint_of_another_architecture_is_refused(tmp_path):
    transformers.LlamaConfig().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="is a llama; the loop knows qwen2 and gpt2"):
        build(LoopSettings(model=str(tmp_path)))


@pytest.mark.parametrize("model", ["qwen2", "gpt2"])
def test_a_seed_gives_the_same_model(model):
    first, again, other = (build(LoopSettings(model=model, seed=seed)) for seed in (1, 1, 2))
    for name, tensor in first.named_parameters():
        assert torch.equal(tensor, again.get_parameter(name))
    assert any(not torch.equal(tensor, other.get_parameter(name)) for name, tensor in first.named_parameters())


@pytest.mark.parametrize("model", ["qwen2", "gpt2"])
def test_the_actor_says_what_the_policy_says_and_values_nothing_at_first(model):
    policy = build(LoopSettings(model=model))
    said = ActorCritic(policy, valued=True)(TOKENS)
    torch.testing.assert_close(said.logits, policy(TOKENS).logits)
    assert said.values.shape == TOKENS.shape and not said.values.any()
    assert ActorCritic(policy, valued=False)(TOKENS).values is None
    assert len(ActorCritic(policy, valued=False).layers) == 2


def tokenizer(tmp_path, texts):
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({text: at for at, text in enumerate(texts)}, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="?").save_pretrained(tmp_path)


def test_digits_are_the_tokens_of_the_checkpoint(tmp_path):
    build(LoopSettings()).save_pretrained(tmp_path)
    tokenizer(tmp_path, ["?", "=", *"76543210"])
    alphabet = alphabet_of(LoopSettings(model=str(tmp_path)))
    digits = torch.tensor([[0, 7, 8]])
    assert alphabet.encode(digits).tolist() == [[9, 2, 1]]
    assert torch.equal(alphabet.decode(alphabet.encode(digits)), digits)
    assert alphabet.decode(torch.tensor([0, 30])).tolist() == [UNKNOWN, UNKNOWN]


def test_a_tokenizer_without_the_digits_is_refused(tmp_path):
    build(LoopSettings()).save_pretrained(tmp_path)
    tokenizer(tmp_path, ["?", "=", *"012345"])
    with pytest.raises(ValueError, match="choose a smaller --base"):
        alphabet_of(LoopSettings(model=str(tmp_path)))


def test_two_digits_are_two_tokens():
    with pytest.raises(ValueError, match="the same token"):
        Alphabet([0, 1, 1])
