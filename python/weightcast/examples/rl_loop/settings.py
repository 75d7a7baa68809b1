"""The options of the loop, and what a child process is told."""

import argparse
import dataclasses
import importlib.util
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .config import ModelConfig

if TYPE_CHECKING:
    from .task import SortTask

NEEDED = "torch", "transformers"
"""What the demo runs on, and the rest of the package does not."""
WORKER_ENV = "RL_LOOP_WORKER"
"""The environment variable in which a child finds its `Worker`."""


def option(default: Any, text: str) -> Any:
    """A field that becomes a command-line option."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Settings:
    """Every option of the program. Field names are option names."""

    steps: int = option(120, "training steps; each is a version")
    trainers: int = option(2, "FSDP2 ranks")
    rollouts: str = option("2,1", "tensor-parallel size of each rollout, separated by commas")
    no_sync: bool = option(False, "the control: rollouts keep the first version")
    control: bool = option(False, "run the control afterwards, and show both in one picture")
    seed: int = option(0, "of the model, the prompts and the sampling")
    json: str = option("weightcast-demo.json", "where the runs go; their picture, .svg, beside it")
    timeout: float = option(120.0, "seconds any single wait may take")
    min_rise: float = option(0.3, "fail if the reward rises less (fraction of right tokens)")
    base: int = option(8, "digits are below this")
    length: int = option(4, "digits in a prompt")
    prompts: int = option(24, "prompts in a batch; each trainer rank takes one batch a step")
    answers: int = option(8, "answers sampled for each prompt")
    max_staleness: int = option(1, "steps a sample's version may be behind the trainers")
    learning_rate: float = option(2e-3, "of Adam")
    clip: float = option(0.2, "importance weights are clipped to 1 plus or minus this")
    temperature: float = option(1.0, "of sampling")
    vocab: int = option(32, "tokens in the vocabulary")
    hidden: int = option(64, "width of the model")
    layers: int = option(2, "decoder layers")
    heads: int = option(4, "attention heads")
    kv_heads: int = option(2, "key and value heads")
    intermediate: int = option(256, "width of the MLP")

    @property
    def runs(self) -> list["Settings"]:
        """The runs that are asked for."""
        control = [dataclasses.replace(self, no_sync=True)] if self.control else []
        return [self, *control]

    @property
    def rollout_sizes(self) -> list[int]:
        """The tensor-parallel size of each rollout."""
        if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", self.rollouts):
            raise ValueError(f"--rollouts {self.rollouts!r} must be sizes like 2,1")
        return [int(size) for size in self.rollouts.split(",")]

    @property
    def task(self) -> "SortTask":
        """What is to be learnt."""
        from .task import SortTask  # with torch: the options are shown without

        return SortTask(self.base, self.length)

    @property
    def model(self) -> ModelConfig:
        """The sizes of the model."""
        return ModelConfig(
            vocab_size=self.vocab,
            hidden_size=self.hidden,
            intermediate_size=self.intermediate,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.hidden // self.heads,
        )

    def check(self) -> None:
        """Raises `ValueError`, with what to change, if the options don't go together."""
        for size in self.rollout_sizes:
            self.model.check_tensor_parallel(size)
        if self.trainers < 1 or self.steps < 1:
            raise ValueError("--steps and --trainers must be at least 1")
        if self.control and self.no_sync:
            raise ValueError("--no-sync is the control itself: leave out --control")
        folder = Path(self.json).parent
        if Path(self.json).suffix == ".svg" or not os.access(folder, os.W_OK):
            raise ValueError(f"--json {self.json!r} must end in .json, in a folder that can be written")
        if self.vocab <= self.base:
            raise ValueError(f"--vocab {self.vocab} must be above --base {self.base}")
        if self.hidden % (2 * self.heads):
            raise ValueError(f"--hidden {self.hidden} must be a multiple of twice --heads")
        from .allocation import ambiguous_rows

        rows = self.prompts * self.answers
        for count in (rows, rows * self.task.prompt_tokens):
            if max(self.rollout_sizes) > 1 and count in ambiguous_rows(self.model):
                raise ValueError(
                    f"activations of {count} rows look like weights to the allocation watch;"
                    f" choose another --prompts than {self.prompts}"
                )


@dataclass(frozen=True)
class Worker:
    """What one child process is told: who it is, and where to find the others."""

    name: str
    rank: int
    size: int
    settings: Settings
    token: str
    samples_port: int
    rendezvous_port: int

    def to_environment(self) -> dict[str, str]:
        """The variables to start the child with."""
        return {WORKER_ENV: json.dumps(dataclasses.asdict(self))}

    @classmethod
    def from_environment(cls) -> "Worker":
        """What the parent said."""
        told = json.loads(os.environ[WORKER_ENV])
        return cls(**told | {"settings": Settings(**told["settings"])})


def parse(arguments: list[str] | None = None) -> Settings:
    """The settings from the command line; ends the program with a message if they are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m weightcast.examples.rl_loop",
        description="FSDP2 trainers learn to sort digits; rollouts follow them through weightcast.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for f in dataclasses.fields(Settings):
        name, text = f"--{f.name.replace('_', '-')}", f.metadata["help"]
        if f.type is bool:
            parser.add_argument(name, help=text, action="store_true")
        else:
            parser.add_argument(name, help=text, type=f.type, default=f.default)
    settings = Settings(**vars(parser.parse_args(arguments)))
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        needs = f"the demo needs {' and '.join(missing)}: pip install 'weightcast[examples]'"
        parser.exit(1, needs + "\n")
    try:
        settings.check()
    except ValueError as error:
        parser.error(str(error))
    return settings
