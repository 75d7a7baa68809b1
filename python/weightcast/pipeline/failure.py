"""The error in which a pipeline ends."""

from .. import _core
from .course import Stage


class StageFailed(_core.WeightcastError):
    """A stage of the pipeline has failed for one tensor. Nothing was published; refresh or publish again.

    On the rank where it failed, `__cause__` is the error itself; other ranks have its text.
    """

    def __init__(self, tensor: str, stage: str, reason: str, rank: int | None = None) -> None:
        where = "" if rank is None else f" on rank {rank}"
        super().__init__(
            f"{Stage(stage)} of {tensor} failed{where}: {reason}. Nothing was published: mend the cause, "
            "then refresh or publish again on all ranks"
        )
        #: The published tensor, or the first of several that are made together.
        self.tensor = tensor
        #: `gather`, `transform` or `send`.
        self.stage = Stage(stage)
        #: What the stage's own error says.
        self.reason = reason
        #: The rank on which it failed; None if there is but one.
        self.rank = rank
