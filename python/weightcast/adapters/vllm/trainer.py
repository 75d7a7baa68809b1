"""The trainer's side of vLLM's weight-transfer interface.

    from vllm.distributed.weight_transfer import ModuleSource
    from weightcast.adapters.vllm import HTTPEngine, TrainerInfo, WeightcastTrainer

    sync = WeightcastTrainer.trainer_init(
        TrainerInfo(rank=rank, server=server), client=HTTPEngine(url), source=ModuleSource(model)
    )
    for step in range(steps):
        train(model)
        sync.send_weights()
"""

from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Self

from vllm.distributed.weight_transfer.base import TrainerInitInfo, TrainerWeightTransferEngine

from ... import _core
from ...handle import Handle, open
from ..engine import Settings
from .engines import Engines
from .plugin import BACKEND
from .sources import Copied, InPlace, Rules, source_of


@dataclass
class TrainerInfo(TrainerInitInfo):
    """Who this trainer rank is, and what its engines are told."""

    backend: ClassVar[str] = BACKEND

    #: The reference server; by default `WEIGHTCAST_SERVER`. Engines are told the same one.
    server: str | None = field(default=None, kw_only=True)
    #: The model's name in the job.
    model: str = field(default="policy", kw_only=True)
    #: The name of the trainer's replica.
    name: str = field(default="trainer", kw_only=True)
    #: `Settings` of the engines, but for `model`, `server` and `catalog`.
    engine: dict[str, Any] = field(default_factory=dict, kw_only=True)
    #: How an engine is paused for installing, if its client can pause it: `abort`, `wait` or `keep`.
    pause: str = field(default="abort", kw_only=True)
    #: Changes the layout before it is registered: FP8 on the way, say.
    rules: Rules | None = field(default=None, kw_only=True)
    #: Seconds that a fetch may take, and every other step.
    deadline: float = field(default=300.0, kw_only=True)


class WeightcastTrainer(TrainerWeightTransferEngine):
    """Publishes a trainer's weights, and has the engines of `client` fetch and install them.

    Engines fetch while they generate (with staged landing), and are paused only to install. Every rank
    calls `trainer_init` and `send_weights`; rank 0 talks to the engines.
    """

    init_info_cls = TrainerInfo

    def __init__(self, *, client: Any, source: Any, is_sender: bool) -> None:
        # Not the base class's, whose parameters change from one vLLM to the next.
        self.client, self.source, self.is_sender = client, source, is_sender

    @classmethod
    def trainer_init(cls, *configured: Any, client: Any, source: Any = None, **named: Any) -> Self:
        """Takes `init_info`, a `TrainerInfo`; some vLLM give their own configuration before that.

        Joins the job and has the engines join: `client` is one, or a list of several. `source` is a
        torch module, vLLM's `ModuleSource` of one (both are published where they lie), or another
        `WeightSource` (which is copied)."""
        if source is None:
            raise _core.Misuse("source is missing: a torch module, or a vLLM WeightSource")
        init_info: TrainerInfo = named["init_info"] if "init_info" in named else configured[-1]
        trainer = cls(client=client, source=source, is_sender=init_info.is_sender)
        trainer._join(init_info)
        return trainer

    def _join(self, info: TrainerInfo) -> None:
        self._info = info
        several = isinstance(self.client, list | tuple)
        self._engines = Engines(self.client if several else [self.client])
        #: The version published last.
        self.version = 0
        self._staged = info.engine.get("landing", "staged") == "staged"
        self._weights: InPlace | Copied = source_of(self.source, info.rank)
        self._handle: Handle | None = None
        if self._weights.publishes:
            self._handle = self._registered(info)
        if self.is_sender:
            self._engines.join(self._engine_settings(info))

    def _registered(self, info: TrainerInfo) -> Handle:
        handle = open(
            info.model, self._weights.replica(info.name), role="trainer", epoch="new", server=info.server
        )
        layout = self._weights.layout()
        if info.rules is not None:
            info.rules(layout)
        handle.register(layout, deadline=info.deadline)
        return handle

    def _engine_settings(self, info: TrainerInfo) -> dict[str, Any]:
        settings = Settings(**{"model": info.model, "server": info.server, **info.engine})
        if settings.catalog is None and info.rules is None and not settings.prefix:
            listed = self._weights.catalog()
            settings.catalog = {name: [list(e.shape), e.dtype] for name, e in listed.items()}
        return asdict(settings)

    def send_weights(self, version: int | None = None) -> int:
        """Publishes the weights as `version` (by default the next one), has the engines fetch and
        install them, and returns the version. When it returns or raises, the weights may be changed."""
        self.version = self.version + 1 if version is None else version
        self._weights.refresh()
        if self._handle is None:
            return self.version
        self._handle.publish(self.version, deadline=self._info.deadline)
        try:
            if self.is_sender:
                self._update_engines(self.version)
        finally:
            # The others wait here for rank 0, which waits for the engines.
            self._handle.unpublish(deadline=2 * self._info.deadline)
        return self.version

    def _update_engines(self, version: int) -> None:
        info, engines = self._info, self._engines
        engines.begin()
        try:
            if self._staged:
                engines.fetch(version, deadline=info.deadline)
        except BaseException:
            engines.abandon()
            raise
        engines.pause(info.pause)
        if not self._staged:
            # A failure leaves engines empty: they stay paused until an update succeeds.
            engines.fetch_in_place(version, deadline=info.deadline)
        engines.install(version)

    def shutdown(self) -> None:
        """Leaves the job."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            handle.close()
