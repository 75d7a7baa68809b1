"""Where a test holds an engine's worker, or has it fail: the test's side of `stops`."""

import time
from pathlib import Path

#: Seconds in which a server must be up, and a request answered, on a busy machine too.
SOON = 240.0


class Stops:
    """Where an engine's worker is held, or fails: see `stops`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory

    def hold(self, place: str) -> None:
        (self.directory / f"{place}.hold").touch()

    def hold_steps(self, tokens: int) -> None:
        """Has the engine stand still once a request has so many tokens; it goes on to answer calls."""
        draft = self.directory / "steps.number"
        draft.write_text(str(tokens))
        draft.rename(self.directory / "steps.hold")

    def fail(self, place: str) -> None:
        (self.directory / f"{place}.fail").touch()

    def fail_once(self, place: str) -> None:
        (self.directory / f"{place}.once").touch()

    def reached(self, place: str) -> int:
        """Waits until a worker is held there; its process."""
        end = time.monotonic() + SOON
        while not (self.directory / f"{place}.reached").exists():
            assert time.monotonic() < end, f"no worker came to {place}"
            time.sleep(0.01)
        return int((self.directory / f"{place}.reached").read_text())

    def release(self, place: str) -> None:
        """Lets the worker that is held there go on."""
        for kind in ("hold", "reached"):
            (self.directory / f"{place}.{kind}").unlink()

    def clear(self) -> None:
        for file in self.directory.iterdir():
            file.unlink()
