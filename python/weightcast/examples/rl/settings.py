"""The options of the loop, and what a child process is told."""

import argparse
import dataclasses
import importlib.util
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..rl_loop.settings import NEEDED, option

if TYPE_CHECKING:
    from ..rl_loop.backlog import Backlog
    from ..rl_loop.task import SortTask

LIBRARIES = {"megatron": "megatron-core", "vllm": "vllm"}
"""What some choices need beside that: a module, and the package that has it."""
CHOICES = {
    "algorithm": ("grpo", "ppo"),
    "trainer": ("ddp", "fsdp2", "megatron"),
    "engine": ("small", "vllm"),
    "dtype": ("float32", "bfloat16", "float16"),
    "train_dtype": ("float32", "bfloat16"),
}
"""Options that are one of a few words."""
TINY = "qwen2", "gpt2"
"""Architectures of `--model` that start from random weights."""
EPOCHS = {"grpo": 1, "ppo": 4}
"""Passes over a batch where `--ppo-epochs` does not say."""
POST_ENV = "RL_POST"
"""The environment variable in which a child finds its `Post`."""


@dataclass(frozen=True)
class LoopSettings:
    """Every option of the program. Field names are option names."""

    algorithm: str = option("grpo", "what the trainers do with samples")
    ppo_epochs: int = option(0, "passes over each batch; 0: one for grpo, four for ppo")
    minibatches: int = option(1, "steps of the optimizer in each pass")
    model: str = option("qwen2", "qwen2 or gpt2, tiny and random; or the directory of a checkpoint")
    trainer: str = option("fsdp2", "how the trainers' ranks share the model")
    trainers: int = option(2, "ranks of the trainers")
    trainer_tp: int = option(1, "tensor-parallel size of megatron")
    engine: str = option("small", "what rollouts generate with")
    rollouts: int = option(2, "rollouts, each an engine of its own")
    rollout_tp: int = option(1, "tensor-parallel size of each rollout")
    rollouts_per_gpu: int = option(192, "answers that a rollout samples in one go, all of one version")
    answers: int = option(8, "of these, answers to the same prompt: the group of grpo")
    iterations: int = option(120, "rounds of sampling and learning; each is a version")
    max_staleness: int = option(1, "versions that a sample may be behind; older ones are dropped")
    patience: float = option(2.0, "seconds that trainers wait before others take a slow rollout's place")
    dtype: str = option("float32", "of the published weights and of the engines")
    train_dtype: str = option("float32", "of the trainers' weights; published cast, if that differs")
    in_place: bool = option(False, "publish the trainers' memory itself, until the next step writes it")
    restarts: int = option(3, "rollouts that are started again after they died, all together")
    seed: int = option(0, "of the model, the prompts and the sampling")
    json: str = option("weightcast-rl.json", "where the report goes; its picture, .svg, beside it")
    timeout: float = option(120.0, "seconds any single wait may take")
    min_rise: float = option(0.0, "fail if the reward rises less (fraction of right tokens)")
    base: int = option(8, "digits are below this")
    length: int = option(4, "digits in a prompt")
    learning_rate: float = option(2e-3, "of Adam")
    clip: float = option(0.2, "importance ratios are clipped to 1 plus or minus this")
    temperature: float = option(1.0, "of sampling")
    discount: float = option(1.0, "gamma of ppo's advantages")
    trace: float = option(0.95, "lambda of ppo's advantages")
    value_weight: float = option(0.5, "of the values' loss beside the policy's, in ppo")
    vocab: int = option(32, "tokens of a tiny model")
    hidden: int = option(64, "width of a tiny model")
    layers: int = option(2, "layers of a tiny model")
    heads: int = option(4, "attention heads of a tiny model")

    @property
    def epochs(self) -> int:
        """Passes over each batch."""
        return self.ppo_epochs or EPOCHS[self.algorithm]

    @property
    def task(self) -> "SortTask":
        """What is to be learnt."""
        from ..rl_loop.task import SortTask  # with torch: the options are shown without

        return SortTask(self.base, self.length)

    @property
    def tokens(self) -> int:
        """Tokens of a prompt and its answer."""
        return 2 * self.length + 1

    @property
    def backlog(self) -> "Backlog":
        """Where batches wait: as many as are fresh when their turn comes."""
        from ..rl_loop.backlog import Backlog

        each = self.trainers // self.trainer_tp
        return Backlog(each * (self.max_staleness + 1), per_version=each, last=self.iterations - 1)

    def check(self) -> None:
        """Raises `ValueError` if the options do not fit together."""
        for name in "trainers", "rollouts", "iterations", "minibatches", "rollout_tp", "trainer_tp":
            if getattr(self, name) < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1")
        if self.max_staleness < 0 or self.ppo_epochs < 0 or self.restarts < 0:
            raise ValueError("--max-staleness, --ppo-epochs and --restarts cannot be negative")
        if self.answers < 2 or self.rollouts_per_gpu % self.answers:
            raise ValueError(
                f"--rollouts-per-gpu {self.rollouts_per_gpu} must be a multiple of --answers "
                f"{self.answers}, which must be 2 or more"
            )
        if self.minibatches > self.rollouts_per_gpu:
            raise ValueError(f"--minibatches {self.minibatches}: there are {self.rollouts_per_gpu} answers")
        self._check_ranks()
        self._check_model()
        folder = Path(self.json).parent
        if Path(self.json).suffix == ".svg" or not os.access(folder, os.W_OK):
            raise ValueError(f"--json {self.json!r} must end in .json, in a folder that can be written")

    def _check_ranks(self) -> None:
        if self.trainer_tp > 1 and (self.trainer != "megatron" or self.trainers % self.trainer_tp):
            raise ValueError("--trainer-tp is for --trainer megatron, and must divide --trainers")
        if self.trainer == "megatron" and self.model == "gpt2":
            raise ValueError("--trainer megatron trains qwen2: gpt2's matrices lie transposed there")
        if self.engine == "vllm" and self.rollout_tp > 1:
            raise ValueError("--engine vllm runs in one process here: leave out --rollout-tp")
        if self.engine == "vllm" and self.model in TINY and self.hidden // self.heads % 32:
            raise ValueError(
                f"--engine vllm has kernels for heads of 32, 64 and so on, not for --hidden {self.hidden} "
                f"over --heads {self.heads}; try --hidden {32 * self.heads}"
            )

    def _check_model(self) -> None:
        if self.model in TINY:
            if self.vocab <= self.base:
                raise ValueError(f"--vocab {self.vocab} must be above --base {self.base}")
            if self.hidden % (2 * self.heads) or self.heads % 2:
                raise ValueError(f"--hidden {self.hidden} must be a multiple of twice --heads, and that even")
        elif not (Path(self.model) / "config.json").is_file():
            raise ValueError(
                f"--model {self.model!r} must be {' or '.join(TINY)}, or a directory with a config.json"
            )


@dataclass(frozen=True)
class Post:
    """What one child process is told: who it is, and where to find the others.

    `life` counts how often its rollout was started.
    """

    name: str
    rank: int
    size: int
    life: int
    settings: LoopSettings
    token: str
    samples_port: int
    rendezvous_port: int

    def to_environment(self) -> dict[str, str]:
        """The variables to start the child with."""
        return {POST_ENV: json.dumps(dataclasses.asdict(self))}

    @classmethod
    def from_environment(cls) -> "Post":
        """What the parent said."""
        told = json.loads(os.environ[POST_ENV])
        return cls(**told | {"settings": LoopSettings(**told["settings"])})


def parse(arguments: list[str] | None = None) -> LoopSettings:
    """The settings from the command line; ends the program with a message if they are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m weightcast.examples.rl",
        description="Trainers learn to sort digits; rollouts sample meanwhile and follow through weightcast.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for f in dataclasses.fields(LoopSettings):
        name, text = f"--{f.name.replace('_', '-')}", f.metadata["help"]
        if f.type is bool:
            parser.add_argument(name, help=text, action="store_true")
        else:
            parser.add_argument(name, help=text, type=f.type, default=f.default, choices=CHOICES.get(f.name))
    settings = LoopSettings(**vars(parser.parse_args(arguments)))
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        parser.exit(1, f"the loop needs {' and '.join(missing)}: pip install 'weightcast[examples]'\n")
    try:
        settings.check()
    except ValueError as error:
        parser.error(str(error))
    for name in {settings.trainer, settings.engine} & set(LIBRARIES):
        if importlib.util.find_spec(name) is None:
            parser.exit(1, f"{name} is not installed here: pip install {LIBRARIES[name]}\n")
    return settings
