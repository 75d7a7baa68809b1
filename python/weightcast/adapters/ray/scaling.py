"""How many rollouts a job needs, by what waits: a decision without Ray, for a loop that adds and removes
actors."""

from dataclasses import dataclass

from ... import _core


@dataclass(frozen=True)
class Scale:
    """Follows the backlog between two bounds."""

    #: Rollouts that there are at least, and at most.
    least: int
    most: int
    #: Samples that one rollout makes in a step.
    per_rollout: int

    def __post_init__(self) -> None:
        if not 0 < self.least <= self.most or self.per_rollout < 1:
            raise _core.Misuse(f"{self}: 0 < least <= most, and a rollout makes one sample at least")

    def wanted(self, rollouts: int, waiting: int, missed: int = 0) -> int:
        """How many rollouts there should be.

        `waiting` samples are still to be made in this step: as many rollouts as make them. `missed` rollouts
        have not got the newest version: while there are any, none is added, which would be another reader.
        One at a time is given up, so that a short lull empties no node."""
        needed = min(max(-(-waiting // self.per_rollout), self.least), self.most)
        if needed > rollouts:
            return max(rollouts, self.least) if missed else needed
        return max(needed, rollouts - 1)
