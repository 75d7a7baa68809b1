"""The model with which an engine guesses tokens (speculative decoding): updated in one step with the model
that it guesses for. vLLM's own sessions for a draft (`start_draft_weight_update`) would be a second step.

- `which`: whether an engine has a draft that updates bring with them, and where its tensors are published
- `reading`: the layout of both models
- `both`: that layout, as one
- `loading`: a draft at the start of an engine that has no checkpoint
"""

from .loading import load_draft, told_beside_draft
from .reading import read_with
from .which import Draft, draft_of

__all__ = ["Draft", "draft_of", "load_draft", "read_with", "told_beside_draft"]
