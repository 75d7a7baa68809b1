"""A checkpoint in safetensors, which trainers write and rollouts read."""

import os
import shutil
import time
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

from .way import Way

LOOK = 0.002
"""Seconds between two looks for a checkpoint."""


class Disk(Way):
    """One file of a trainer with the whole model, or one of each trainer with its rows. A folder that all
    share stands for a file system that all hosts see; its bytes cross no link."""

    def send(self, version: int) -> None:
        """Writes the file, and shows it when it is whole; removes the one before the last."""
        if self.place.trainer == "ddp" and self.place.rank:
            return
        shutil.rmtree(self.folder(version - 2), ignore_errors=True)
        folder = self.folder(version)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.place.rank}.part"
        save_file(self.memory.tensors, file)
        os.rename(file, file.with_suffix(".safetensors"))

    def files(self, version: int) -> list[Path]:
        """Of a version, when all are there."""
        writers = 1 if self.place.trainer == "ddp" else self.place.trainers
        return [self.folder(version) / f"{rank}.safetensors" for rank in range(writers)]

    def wait(self, version: int) -> None:
        """Until all files are there."""
        end = time.monotonic() + self.place.timeout
        while not all(file.exists() for file in self.files(version)):
            if time.monotonic() > end:
                raise TimeoutError(f"no checkpoint of version {version} within --timeout")
            time.sleep(LOOK)

    def receive(self, version: int) -> None:
        """Reads the rows that are its own."""
        files = self.files(version)
        for rank, file in enumerate(files):
            with safe_open(file, "pt") as checkpoint:
                for piece in self.memory.pieces:
                    each = -(-piece.shape[0] // len(files))  # rows of a file
                    there, here = rank * each, piece.start
                    first, last = max(here, there), min(here + piece.rows, there + each)
                    if first < last:
                        rows = checkpoint.get_slice(piece.name)[first - there : last - there]
                        self.memory.tensors[piece.name][first - here : last - here].copy_(rows)

    def folder(self, version: int) -> Path:
        """Of a version."""
        return Path(self.place.disk) / self.task.name / str(version)
