"""What a live engine does in an update, whichever engine that is.

- `settings`: what an engine is told about the job
- `shard`: one worker of an engine: fetches a version, installs the version, says what the engine holds

And what a trainer does with live engines (import these where they are used: some need torch):

- `http`: the routes of an engine's server
- `engines`: several engines, updated together
- `sources`, `copied`: what a trainer publishes
- `adapter`: what it publishes of a LoRA adapter
- `trainer`: publishes, and has the engines follow
"""

from .settings import Settings
from .shard import EngineShard, EngineState

__all__ = ["EngineShard", "EngineState", "Settings"]
