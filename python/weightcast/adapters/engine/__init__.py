"""What a live engine does in an update, whichever engine that is.

- `settings`: what an engine is told about the job
- `shard`: one worker of an engine: fetches a version, installs the version, says what the engine holds
"""

from .settings import Settings
from .shard import EngineShard, EngineState

__all__ = ["EngineShard", "EngineState", "Settings"]
