"""What `Handle.wait` waits for, looked at by the server: all shards get the same answer."""

from dataclasses import dataclass

from . import selector


@dataclass(frozen=True)
class Condition:
    """Holds at some revisions of the listing. Made by the functions below.

    Rollouts count from `register` to `unregister` or their end; one that is being filled holds
    nothing. Versions are those of the newest run that has an available one.
    """

    kind: str
    number: int = 0
    rollouts: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.number < 2**64:
            raise ValueError(f"a version is at least 0 and below 2**64, not {self.number}")
        if self.rollouts is not None and not 0 <= self.rollouts < 2**32:
            raise ValueError(f"rollouts are counted from 0 to 2**32 - 1, not {self.rollouts}")


def available(version: "selector.Selector | int | str") -> Condition:
    """A version can be read. Fails at once if it never will be, as `replicate` does."""
    chosen = selector.parse(version)
    return Condition(chosen.kind, chosen.number)


def held(version: int, *, by: int | None = None) -> Condition:
    """`by` rollouts, or all that there are, hold this version or a newer one: none lags."""
    return Condition("held", version, by)


def fresh(behind: int, *, by: int | None = None) -> Condition:
    """`by` rollouts, or all that there are, hold a version at most so many numbers before the
    newest available one: none is over-stale."""
    return Condition("fresh", behind, by)
