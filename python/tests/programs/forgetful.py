"""A way that leaves a tensor out: what `bench_rl` must notice."""

from bench_rl.ways.collective import Broadcast

FORGOTTEN = "model.layers.1.mlp.up_proj.weight"


class Forgetful(Broadcast):
    """Broadcasts all tensors but one."""

    def __init__(self, place, memory, task):
        super().__init__(place, memory, task)
        self.names.remove(FORGOTTEN)
