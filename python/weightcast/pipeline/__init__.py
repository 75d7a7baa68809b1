"""Whole tensors on their way into host memory: gathered, transformed, sent, side by side, under a budget.

Reading order:

- `course`: which piece of work may enter which stage, and when; decides, and does nothing
- `slots`: which staging memory may be filled again
- `staging`: which trainer rank stages what for which rank of which engine
- `sharing`: which rank makes which tensor
- `failure`: the one error in which a pipeline ends
- `run`: the threads that do what `course` decides

None of these knows torch.
"""

from .course import GIB, Course, Item, Stage
from .failure import StageFailed
from .run import Gathering, Pipeline, Work
from .slots import Slots
from .staging import Staging, assign, stages_of

__all__ = [
    "GIB",
    "Course",
    "Gathering",
    "Item",
    "Pipeline",
    "Slots",
    "Stage",
    "StageFailed",
    "Staging",
    "Work",
    "assign",
    "stages_of",
]
