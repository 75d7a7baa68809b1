"""The trainer's side of live engines: publishes weights, and has engines fetch and install them."""

import logging
from dataclasses import asdict, dataclass, field
from typing import Any

from ... import _core
from ...handle import Handle, open
from ...pipeline import GIB
from .adapter import Adapter
from .engines import Engines
from .fleet import Fleet
from .settings import Settings
from .sources import Rules, source_of
from .times import EngineTimes

log = logging.getLogger("weightcast")


@dataclass(kw_only=True)
class TrainerSettings:
    """How a trainer publishes, and what its engines are told."""

    #: The reference server; by default `WEIGHTCAST_SERVER`. Engines are told the same one.
    server: str | None = None
    #: The model's name in the job.
    model: str = "policy"
    #: The name of the trainer's replica.
    name: str = "trainer"
    #: `Settings` of the engines, but for `model`, `server` and `catalog`.
    engine: dict[str, Any] = field(default_factory=dict)
    #: How an engine is paused for installing, if its client can pause it: one of the engine's own modes.
    pause: str = "abort"
    #: Changes the layout before it is registered: FP8 on the way, say.
    rules: Rules | None = None
    #: Bytes that are under way at one time where a `WeightSource` yields full tensors that are copied.
    budget: int = GIB
    #: Seconds that a fetch may take, and every other step.
    deadline: float = 300.0


class Publisher:
    """Publishes a trainer's weights, and has engines fetch and install them.

    Engines fetch while they generate (with staged landing), and are paused only to install. Every rank
    makes one and calls `send`; rank 0 talks to the engines.
    """

    def __init__(self, settings: TrainerSettings, *, rank: int, clients: Any, source: Any) -> None:
        """Joins the job, and on rank 0 has the engines join: `clients` is one, or a list of several.
        `source` is a torch module (published where it lies), what `weightcast.torch.gathered` makes of one,
        an `Adapter` of one (engines take it into the slot that has the model's name in the job), or a
        `WeightSource` in vLLM's form."""
        if source is None:
            raise _core.Misuse(
                "source is missing: a torch module, weightcast.torch.gathered() of one, an Adapter, or a "
                "vLLM WeightSource"
            )
        self._settings, self._rank = settings, rank
        listed = list(clients) if isinstance(clients, list | tuple) else [clients]
        if isinstance(source, Adapter):
            listed = [_slot(client, settings.model) for client in listed]
        # A successor, which may have another name, goes on where a lost trainer of the model stopped.
        self._holder = f"trainer of {settings.model}"
        self._clients, self._engines = listed, Engines(listed, self._holder)
        self._fleet: Fleet | None = None
        #: The version published last.
        self.version = 0
        #: How long each engine took for the last version, fetch and pause apart: on rank 0.
        self.times: list[EngineTimes] = []
        self._staged = settings.engine.get("landing", "staged") == "staged"
        self._weights = source_of(source, rank, settings.budget)
        self._handle: Handle | None = None
        if self._weights.publishes:
            self._handle = self._registered()
        if rank == 0:
            self._join_engines()

    def _join_engines(self) -> None:
        try:
            settings = self._engine_settings()
            self._engines.join(settings)
            if self._staged and all(hasattr(client, "order") for client in self._clients):
                self._fleet = self._joined_fleet(settings)
        except BaseException:
            # Whoever tries again does so under the same name.
            self.close()
            raise

    def _joined_fleet(self, settings: dict[str, Any]) -> Fleet:
        """The engines as one fleet; what a lost trainer has left is ended."""
        assert self._handle is not None, "rank 0 publishes"
        fleet = Fleet(
            self._clients,
            self._handle._core.ask_fleet,
            settings,
            holder=self._holder,
            pause=self._settings.pause,
            deadline=self._settings.deadline,
        )
        try:
            fleet.bring(None)
        except _core.WeightcastError as error:
            log.warning("engines stay as they are until the next version: %s", error)
        return fleet

    def _registered(self) -> Handle:
        settings = self._settings
        handle = open(
            settings.model,
            self._weights.replica(settings.name),
            role="trainer",
            epoch="new",
            server=settings.server,
        )
        try:
            layout = self._weights.layout()
            if settings.rules is not None:
                settings.rules(layout)
            handle.register(layout, deadline=settings.deadline)
        except BaseException:
            handle.close(deadline=1.0)
            raise
        return handle

    def _engine_settings(self) -> dict[str, Any]:
        own = self._settings
        settings = Settings(**{"model": own.model, "server": own.server, **own.engine})
        if settings.catalog is None and own.rules is None and not settings.prefix:
            listed = self._weights.catalog()
            settings.catalog = {name: [list(e.shape), e.dtype] for name, e in listed.items()}
        return asdict(settings)

    def send(self, version: int | None = None) -> int:
        """Publishes the weights as `version` (by default the next one), has the engines fetch and
        install them, and returns the version. When it returns or raises, the weights may be changed."""
        self.version = self.version + 1 if version is None else version
        self._weights.refresh()
        if self._handle is None:
            return self.version
        self._handle.publish(self.version, deadline=self._settings.deadline)
        try:
            if self._rank == 0:
                self._update_engines(self.version)
        finally:
            self._unpublish(self._handle)
        return self.version

    def _unpublish(self, handle: Handle) -> None:
        """Takes the version back once rank 0 is done with the engines."""
        # Rank 0 is done by now; others wait while it fetches, pauses, installs perhaps twice, and resumes.
        patience = self._settings.deadline * (1 if self._rank == 0 else 8)
        try:
            # The first rank that unpublishes ends the version for engines: the others wait here for rank 0.
            handle.list(deadline=patience)
        finally:
            handle.unpublish(deadline=patience)

    def _update_engines(self, version: int) -> None:
        try:
            if self._fleet is None:
                self._update_by_calls(version)
            else:
                assert self._handle is not None and self._handle.epoch is not None, "it has published"
                self._fleet.update({"epoch": self._handle.epoch, "number": version})
        finally:
            self.times = (self._fleet or self._engines).times
            for times in self.times:
                log.info("version %d: %s", version, times)

    def _update_by_calls(self, version: int) -> None:
        settings = self._settings
        self._engines.update(version, staged=self._staged, pause=settings.pause, deadline=settings.deadline)

    def close(self) -> None:
        """Leaves the job."""
        if self._fleet is not None:
            self._fleet.close()
        if self._handle is not None:
            handle, self._handle = self._handle, None
            handle.close()


def _slot(client: Any, name: str) -> Any:
    if not hasattr(client, "slot"):
        raise _core.Misuse(
            f"{type(client).__name__} takes no adapters; use HTTPEngine or LocalEngine of "
            "weightcast.adapters.vllm"
        )
    return client.slot(name)
