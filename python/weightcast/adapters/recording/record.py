"""One recording: marked tensors through a loader, and the engine left as it was."""

from collections.abc import Mapping
from typing import Any

import torch

from ..catalog import Entry
from .marks import Recording
from .owners import storage
from .recorder import Recorder, Refused
from .watched import Watched


def record(
    targets: Mapping[str, torch.Tensor],
    load: Any,
    catalog: Mapping[str, Entry],
    known: Mapping[str, str],
) -> Recording:
    """What `load` does with the tensors of `catalog`: where it copies which of them. It gets them
    under their names in `known`, and no others.

    `load` takes an iterable of names and tensors, as a model's `load_weights` does. `targets` are
    the parameters and buffers, which it leaves unchanged. Raises `Refused`.
    """
    recorder = Recorder(targets)
    data = {name: (t, t.data) for name, t in targets.items()}
    fed = recorder.feed(catalog, known)
    try:
        with torch.no_grad(), Watched(recorder, targets), recorder:
            load(fed)
    except Refused:
        raise
    except Exception as error:
        at = recorder.feeding or "after the last tensor"
        kind = type(error).__name__
        raise Refused(f"{at}: the engine's loader failed on it: {kind}: {error}") from error
    finally:
        for name, (tensor, before) in data.items():
            if tensor.data_ptr() != before.data_ptr() or storage(tensor) != storage(before):
                tensor.data = before
                recorder.recording.changes.append((name, "replacing its data"))
    return recorder.recording
