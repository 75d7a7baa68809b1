"""TRL's own asynchronous trainer hands weights to ours: engines hold each version to the bit."""

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer

from tests.test_streamed import FetchingEngine
from weightcast.adapters.engine.trainer import TrainerSettings
from weightcast.adapters.trainers.trl import WeightTransfer

from .models import build
from .programs.peft_trainer import learn


class NoRollouts:
    """Generates nothing; notes what TRL says of versions."""

    def __init__(self) -> None:
        self.rollout_buffer: Any = queue.Queue()
        self.metrics_queue: Any = queue.Queue()
        self.versions: list[int] = []

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def update_model_version(self, model_version: int) -> None:
        self.versions.append(model_version)

    def check_health(self, stale_after_s: float) -> None:
        pass


@pytest.fixture
def engine() -> Iterator[FetchingEngine]:
    made = FetchingEngine()
    yield made
    made.close()


def trainer(path: Path, transfer: WeightTransfer, rollouts: NoRollouts, monkeypatch: pytest.MonkeyPatch, **given: Any) -> Any:
    """TRL's trainer over a small model. Its attention comes from a hub of kernels for GPUs, and is not needed;
    it asks a GPU for its name."""
    monkeypatch.setattr(async_grpo_trainer, "register_tree_attention", lambda: None)
    monkeypatch.setattr(async_grpo_trainer, "TREE_ATTENTION", "sdpa")
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *_: None)
    words = {f"w{at}": at for at in range(48)} | {"<eos>": 48, "<pad>": 49}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="<pad>")), eos_token="<eos>", pad_token="<pad>"
    )
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    build().save_pretrained(path / "model")
    tokenizer.save_pretrained(path / "model")
    arguments = AsyncGRPOConfig(
        output_dir=str(path / "out"), use_cpu=True, report_to=[], max_steps=2, bf16=False, gradient_checkpointing=False,
        per_device_train_batch_size=1, dtype="float32",
    )  # fmt: skip
    return AsyncGRPOTrainer(
        str(path / "model"), reward_funcs=[lambda **_: [0.0]], args=arguments, processing_class=tokenizer,
        train_dataset=Dataset.from_dict({"prompt": ["w1 w2", "w3"]}),
        rollout_worker=rollouts, weight_transfer=transfer, **given,
    )  # fmt: skip


@pytest.mark.parametrize("peft", [None, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)])
def test_engines_take_what_trl_hands_out(server, engine, tmp_path, monkeypatch, peft) -> None:
    transfer, rollouts = WeightTransfer(engine, TrainerSettings(server=server.address)), NoRollouts()
    given = {} if peft is None else {"peft_config": peft}
    made = trainer(tmp_path, transfer, rollouts, monkeypatch, **given)
    begin = next(c for c in made.callback_handler.callbacks if type(c).__name__ == "_TrainBeginCallback")
    for version in (1, 2):
        if version == 1:
            begin.on_train_begin(None, None, None)
        else:
            learn(made.model)
            made._sync_weight()
        if peft is not None:
            made.model.merge_adapter()
        wanted = dict(async_grpo_trainer._iter_vllm_named_params(made.model))
        assert engine.weights.keys() == wanted.keys()
        for name, tensor in wanted.items():
            assert torch.equal(engine.weights[name], tensor.detach()), (name, version)
        if peft is not None:
            made.model.unmerge_adapter()
        assert transfer.version == version == made.model_version and rollouts.versions[-1] == version
    assert engine.calls.count("pause") == 2
    made.weight_transfer.destroy()
