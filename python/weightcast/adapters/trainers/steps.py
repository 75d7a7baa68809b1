"""Publishing after steps of an optimizer, whoever runs the loop."""

from collections.abc import Callable, Mapping
from typing import Any

import torch.distributed as dist

from ... import _core
from ...handle import HURRY, Handle, open
from ...layout import Layout
from ..engine.sources import InPlace, source_of
from ..engine.times import EngineTimes
from ..engine.trainer import Publisher, TrainerSettings


class Steps:
    """Publishes weights after steps of an optimizer, and takes each version back before the next step.

    A loop calls `begin`, then `before` and `after` around each step, and `end`; every rank does. Versions are
    the numbers of steps, and `begin` publishes one as well: what rollouts start with.
    """

    def __init__(
        self,
        model: str = "policy",
        *,
        every: int = 1,
        of: Callable[[Any], Any] | None = None,
        layout: Mapping[str, Any] | None = None,
        rules: Callable[[Layout], Any] | None = None,
        name: str = "trainer",
        clients: Any = None,
        engine: Mapping[str, Any] | None = None,
        deadline: float = 300.0,
        **options: Any,
    ) -> None:
        """`model` is the model's name in the job, `name` that of the trainer's replica. A version is
        published after each step whose number `every` divides.

        `of` makes the source of what the loop trains (`lambda module: module.policy`, an `Adapter`,
        `weightcast.torch.gathered`); by default that is published itself. `layout` are arguments of
        `weightcast.torch.layout` for a module: with `{"beside": True}` what is published is a copy, and stays
        published until the next version. `rules` changes the layout before it is registered.

        Rollouts come for versions by themselves; live engines, if `clients` are given, are brought to each
        before the loop goes on, with `engine` as their settings. `options` go to `weightcast.open`, or with
        `clients` to `TrainerSettings`. `deadline` is what each call may take, in seconds."""
        if every < 1:
            raise _core.Misuse(f"every={every}: a version is published every so many steps, 1 at least")
        self._model, self._every, self._of, self._name = model, every, of, name
        self._layout, self._rules = dict(layout or {}), rules
        self._clients, self._engine = clients, dict(engine or {})
        self._deadline, self._options = deadline, options
        self._handle: Handle | None = None
        self._publisher: Publisher | None = None
        self._weights: Any = None
        self._apart = False

    def begin(self, module: Any, step: int = 0) -> None:
        """Joins the job with what a loop trains, and publishes what it begins with. Again, as before another
        round of training, leaves first."""
        self.end()
        source = module if self._of is None else self._of(module)
        rank = dist.get_rank() if dist.is_initialized() else 0
        if self._clients is None:
            self._open(source, rank)
        else:
            self._join(source, rank)
        self._publish(step)

    def _open(self, source: Any, rank: int) -> None:
        weights = InPlace(source, rank, self._layout) if self._layout else source_of(source, rank)
        self._weights = weights
        if not weights.publishes:
            return
        options = {"role": "trainer", "epoch": "new"} | self._options
        handle = open(self._model, weights.replica(self._name), **options)
        try:
            layout = weights.layout()
            if self._rules is not None:
                self._rules(layout)
            handle.register(layout, deadline=self._deadline)
        except BaseException:
            handle.close(deadline=HURRY)
            raise
        self._handle, self._apart = handle, layout.all_beside

    def _join(self, source: Any, rank: int) -> None:
        if self._layout:
            raise _core.Misuse("layout= is for rollouts that come by themselves; with clients=, give of=")
        settings = TrainerSettings(
            model=self._model,
            name=self._name,
            engine=self._engine,
            rules=self._rules,
            deadline=self._deadline,
            **self._options,
        )
        self._publisher = Publisher(settings, rank=rank, clients=self._clients, source=source)

    @property
    def handle(self) -> Handle | None:
        """The handle of a rank that publishes for rollouts: to wait until they have a version, say."""
        return self._handle

    @property
    def times(self) -> list[EngineTimes]:
        """With `clients`: how long each engine took for the last version, fetch and pause apart (rank 0)."""
        return [] if self._publisher is None else self._publisher.times

    def before(self) -> None:
        """The weights are about to change: nobody reads them any more when this returns."""
        if not self._apart:
            self._take_back()

    def after(self, step: int) -> None:
        """The weights have changed: they are those of this step."""
        if step % self._every == 0:
            self._publish(step)

    def end(self) -> None:
        """Training is over: takes the last version back, and leaves the job."""
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close()
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.close(deadline=self._deadline)

    def _publish(self, step: int) -> None:
        if self._publisher is not None:
            self._publisher.send(step)
            return
        self._take_back()
        self._weights.refresh()
        if self._handle is not None:
            self._handle.publish(step, deadline=self._deadline)

    def _take_back(self) -> None:
        if self._handle is not None and self._handle.version is not None:
            self._handle.unpublish(deadline=self._deadline)
