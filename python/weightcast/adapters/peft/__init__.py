"""Models of PEFT, whose adapters are published merged into the base model, under the names of its checkpoint.

An adapter alone, as a model of its own, is `weightcast.adapters.engine.Adapter`.

- `names`: what the base model's checkpoint calls the parameters
- `unmerged`: what of a model is not merged
- `merged`: what merging makes, while the model stays as it is
"""

from .merged import merged

__all__ = ["merged"]
