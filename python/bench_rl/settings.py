"""The options of a run."""

import argparse
import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .forecast import gb_per_s

PROGRAM = "python -m bench_rl"
CHOICES = {
    "trainer": ("ddp", "fsdp2"),
    "links": ("auto", "emulated", "loopback"),
    "lane": ("tcp", "auto", "direct"),
}
"""Options that are one of a few words."""
MODES = "in-place", "staged"
"""Bytes land in the memory that trains and generates; or beside it, and are copied into place."""
ALL_WAYS = "broadcast,packed,chain,two-level,ray,disk,weightcast-pull,weightcast-push"


def option(default: Any, text: str) -> Any:
    """A field that is an option of the program."""
    return dataclasses.field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class BenchSettings:
    """Every option of the program. Field names are option names."""

    trainers: int = option(4, "trainers, a process each")
    rollouts: int = option(8, "rollouts")
    rollout_tp: int = option(1, "processes of a rollout, each with its rows of every matrix")
    trainer: str = option("ddp", "ddp: each trainer has the whole model; fsdp2: each has its rows of it")
    layers: int = option(3, "layers of the model, which is shaped as Qwen2.5 is")
    hidden: int = option(384, "its width")
    vocab: int = option(8192, "its tokens")
    ways: str = option(ALL_WAYS, "what to compare, by commas; MODULE:CLASS for a way of your own")
    modes: str = option(",".join(MODES), "where bytes land")
    updates: int = option(11, "updates of each way; the first does not count")
    busy: float = option(3.0, "broadcast times for which one rollout is busy; 0: no such measure")
    busy_updates: int = option(3, "updates of each way beside a busy rollout; the first does not count")
    links: str = option("auto", "emulated: a namespace for each host (root); auto: that, if possible")
    rate: str = option("400mbit", "of a host's link in each direction, as `tc` writes it")
    per_host: int = option(1, "processes on one emulated host")
    lane: str = option("tcp", "weightcast's way on loopback; over links it is tcp")
    generate: float = option(2.0, "seconds of generation in a step, for steps a minute")
    train: float = option(2.0, "seconds of training in a step, for steps a minute")
    sweep: str = option("1,8", "numbers of trainers that are measured beside --trainers; empty: none")
    sweep_ways: str = option("packed,weightcast-pull,weightcast-push", "ways that are measured there")
    sweep_updates: int = option(4, "updates of each way there; the first does not count")
    forecast: str = option("8,16,24,32", "numbers of trainers that are simulated; empty: none")
    search: bool = option(True, "try sizes of buckets first, for ways that have them")
    small: bool = option(True, "measure a small model too, on loopback, where point-to-point loses")
    disk: str = option("", "where checkpoints go; empty: a folder in memory, /dev/shm")
    json: str = option("bench-rl.json", "where the report goes; its picture, .svg, beside it")
    timeout: float = option(120.0, "seconds that any single wait may take")

    @property
    def way_list(self) -> list[str]:
        """The ways to compare."""
        return [each for each in self.ways.split(",") if each]

    @property
    def mode_list(self) -> list[str]:
        """Where bytes are to land."""
        return [each for each in self.modes.split(",") if each]

    @property
    def senders(self) -> list[int]:
        """Numbers of trainers that are measured beside `trainers`."""
        return sorted({int(each) for each in self.sweep.split(",") if each} - {self.trainers})

    @property
    def sweep_list(self) -> list[str]:
        """The ways that are measured with other numbers of trainers."""
        return self.sweep_ways.split(",")

    @property
    def foreseen(self) -> list[int]:
        """Numbers of trainers that are simulated."""
        return [int(each) for each in self.forecast.split(",") if each]

    @property
    def ends(self) -> int:
        """Processes of all rollouts."""
        return self.rollouts * self.rollout_tp

    def check(self) -> None:
        """Raises `ValueError` if the options do not fit together."""
        for name in "trainers", "rollouts", "rollout_tp", "layers", "hidden", "vocab", "per_host":
            if getattr(self, name) < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1")
        for name in "updates", "busy_updates", "sweep_updates":
            if getattr(self, name) < 2:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 2: the first does not count")
        if unknown := set(self.mode_list) - set(MODES):
            raise ValueError(f"--modes {','.join(unknown)}: there are {' and '.join(MODES)}")
        if not self.way_list or not self.mode_list:
            raise ValueError("--ways and --modes must name one each at least")
        if self.hidden % 64:
            raise ValueError(f"--hidden {self.hidden} must be a multiple of 64, the size of a head")
        if self.busy < 0 or min([1, *self.senders, *self.foreseen]) < 1:
            raise ValueError("--busy cannot be negative, and --sweep and --forecast are numbers from 1 on")
        gb_per_s(self.rate)
        folder = Path(self.json).parent
        if Path(self.json).suffix != ".json" or not os.access(folder, os.W_OK):
            raise ValueError(f"--json {self.json!r} must end in .json, in a folder that can be written")
        if self.disk and not os.access(self.disk, os.W_OK):
            raise ValueError(f"--disk {self.disk!r} is no folder that can be written")


def parse(arguments: list[str] | None = None) -> BenchSettings:
    """The settings from the command line; ends the program with a message if they are wrong."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Moves a model's weights from trainers to rollouts in every way, and compares them.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for f in dataclasses.fields(BenchSettings):
        name, text = f"--{f.name.replace('_', '-')}", f.metadata["help"]
        if f.type is bool:
            parser.add_argument(name, help=text, action=argparse.BooleanOptionalAction, default=f.default)
        else:
            parser.add_argument(name, help=text, type=f.type, default=f.default, choices=CHOICES.get(f.name))
    settings = BenchSettings(**vars(parser.parse_args(arguments)))
    try:
        settings.check()
    except ValueError as error:
        parser.error(str(error))
    return settings
