"""The worker's side of vLLM's weight-transfer interface.

vLLM calls, on every worker of an engine: `init_transfer_engine` once; then for each update
`start_weight_update`, `update_weights` (the fetch), `finish_weight_update` (the install).
"""

from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import WeightTransferEngine

from ... import _core
from ..engine import EngineShard, EngineState, Settings
from ..engine.orders import Orders
from .draft import Draft, draft_of, read_with
from .identity import replica_of
from .loader import loaded_run, loaded_version
from .lora.slots import Slots
from .lora.steps import manager_of
from .model import read
from .serving import watch_workers
from .turns import Turn


@dataclass(kw_only=True)
class UpdateInfo:
    """One `update_weights` request: which version to fetch, by when.

    Without `wait` the request returns at once, the engine generates on, and `finish_weight_update` waits
    for the rest; the trainer learns from the reference server when the version has arrived.
    """

    version: int | str = "latest"
    wait: bool = True
    #: Seconds; by default those of the settings.
    deadline: float | None = None
    #: Whether an older version than the one held may be taken.
    allow_rollback: bool = False
    #: Ends an update without fetching: the engine keeps what it has.
    abandon: bool = False


class WeightcastEngine(WeightTransferEngine):
    """Fetches and installs versions on one vLLM worker."""

    init_info_cls = Settings
    update_info_cls = UpdateInfo
    # A session of its own would be a step of its own: the draft comes with its model, see `draft`.
    supports_draft_weight_update = False

    def __init__(self, *made_of: Any) -> None:
        """`made_of` is what this form of vLLM makes its engines of, see `forms`."""
        super().__init__(*made_of)
        self._shard: EngineShard | None = None
        #: This worker's part in the job that it left last: it still says what the parameters hold.
        self._left: EngineShard | None = None
        #: Whether the parameters came from another job than the one that this worker is in.
        self._foreign = False
        #: Of the worker: noted before this engine joins, as not all forms of vLLM make it of that.
        self.vllm_config: Any = getattr(self, "vllm_config", None)
        self._slots: Slots | None = None
        #: The worker's model that guesses tokens, if it has one: noted before this engine joins.
        self.draft_model: torch.nn.Module | None = None
        self.turn = Turn()
        #: Whether the update has ended without an install: see `agreed`.
        self.abandoned = False
        #: What runs the worker's model, noted before this engine joins.
        self.model_runner: Any = None
        #: The worker's gate, once it has joined.
        self.orders: Orders | None = None
        watch_workers()

    def init_transfer_engine(self, init_info: Settings) -> None:
        """Joins the job. A second call with the same settings (of a trainer that was started again)
        changes nothing, unless the job does not know this worker any more; with others, this worker leaves
        the job and joins the other. What the parameters hold stays known."""
        same = self._shard is not None and self._shard.settings == init_info
        if same and self._shard is not None and self._shard.answers():
            return
        self._refuse_foreign_base(init_info)
        self._leave()
        draft = draft_of(self.vllm_config, self.draft_model, init_info)
        self._refuse_moving_experts(init_info)
        replica = replica_of(self.vllm_config, init_info)
        self._close_orders()
        self._shard = EngineShard(
            init_info, replica, self._read(init_info, draft), **self._carried_over(init_info)
        )

    def _carried_over(self, settings: Settings) -> dict[str, Any]:
        """What the parameters hold, as `EngineShard` is told it: in the job to be joined."""
        if self._left is None:
            return {"installed": loaded_version(self.model), "run": loaded_run(self.model)}
        state = self._left.state
        if not _same_job(self._left.settings, settings):
            self._foreign |= state.installed is not None
            return {"incomplete": state.incomplete}
        version = self._left.version
        run = None if version is None else version["epoch"]
        return {"installed": state.installed, "run": run, "incomplete": state.incomplete}

    def open_gate(self, life: int) -> None:
        """Takes orders from now on, as an engine of this life; does nothing if it does."""
        if self.orders is None:
            self.orders = Orders(self, life)

    def shard(self) -> EngineShard:
        """This worker's part in the job. Raises before it has joined one."""
        return self._joined()

    def before_fetch(self) -> None:
        """Raises if the engine cannot take a version now."""
        self._refuse_adapters()

    def before_install(self) -> None:
        """Adapters may have come since the fetch."""
        self._refuse_adapters()

    def after_install(self) -> None:
        """What follows an install, whoever has ordered it."""
        self._foreign = False
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        # As vLLM does at the end of an update through its interface.
        reset = getattr(self.model_runner, "reset_lora_state", None)
        if reset is not None:
            reset()

    def _changed_by_calls(self) -> None:
        """An update without orders has changed what this worker holds, or has tried to."""
        if self.orders is not None:
            self.orders.renew()

    def start_weight_update(self) -> None:
        """Begins an update. Nothing changes yet: the engine may generate until `finish_weight_update`."""
        self.abandoned = False
        self._joined().begin()

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Fetches a version; `update_info` has the fields of `UpdateInfo`."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: UpdateInfo, load_weights: Any = None) -> None:
        """Fetches a version, and verifies it. `load_weights` is where vLLM up to 0.24 wants weights: ours are
        put in place by `finish_weight_update`."""
        self.abandoned = update_info.abandon
        if update_info.abandon:
            return
        self._refuse_adapters()
        try:
            self._joined().fetch(
                update_info.version,
                wait=update_info.wait,
                deadline=update_info.deadline,
                allow_rollback=update_info.allow_rollback,
            )
        finally:
            self._changed_by_calls()

    def finish_weight_update(self) -> None:
        """Puts the fetched version in place. After an error the worker refuses to run its model until
        an update succeeds."""
        # They may have come since the fetch.
        self._refuse_adapters()
        try:
            self._joined().install()
            self.after_install()
        finally:
            self._changed_by_calls()

    @property
    def state(self) -> EngineState | None:
        """What the worker's parameters hold, once it has joined a job."""
        return None if self._shard is None else self._shard.state

    def check_serving(self) -> None:
        """Raises if the worker's parameters are no whole version."""
        last = self._shard or self._left
        if last is not None:
            last.check_serving()
        if self.orders is not None and not self.orders.may_serve():
            raise _core.WeightcastError(
                "this engine stands still for an update of its fleet, and was resumed by somebody else than "
                "the driver of that; have a trainer update it, or call release() of its HTTPEngine"
            )

    def spoil(self, why: str) -> None:
        """Keeps the worker from running its model until all workers of the engine have installed."""
        if self._shard is not None:
            self._shard.spoil(why)
            self._changed_by_calls()

    def before_sleep(self, level: int) -> None:
        """The worker is about to sleep: from level 1 on its memory goes, from level 2 on its weights."""
        if self.orders is not None and level >= 1:
            self.orders.slept()
        if self._shard is not None and level >= 2:
            self._shard.discard()
        elif self._shard is not None and level >= 1:
            self._shard.withdraw()

    def after_wake(self, tags: list[str] | None) -> None:
        """The worker has woken up. Weights that were discarded come back from the memory beside them."""
        if self._shard is not None and (tags is None or "weights" in tags):
            self._shard.restore()
            self._changed_by_calls()

    def slots(self, worker: Any) -> Slots:
        """The LoRA adapters of this worker."""
        if self._slots is None:
            self._slots = Slots(manager_of(worker), self.base_version)
        return self._slots

    def join_adapter(self, worker: Any, settings: Settings) -> None:
        """Joins the job of a LoRA adapter, which has a model name of its own."""
        stages = self.vllm_config.parallel_config.pipeline_parallel_size
        if stages > 1:
            raise _core.Misuse(
                f"this engine has {stages} pipeline stages, and weightcast does not cut adapters to stages "
                "yet; start it without --pipeline-parallel-size"
            )
        self.slots(worker).join(settings, replica_of(self.vllm_config, settings))

    def base_version(self) -> int | None:
        """The version that the parameters hold; None for weights that the engine loaded by itself. Raises if
        they are none that an adapter could be trained on."""
        self.check_serving()
        if self._foreign:
            raise _core.Misuse(
                "this engine holds weights of another job than the one that it is in: update its base first"
            )
        last = self._shard or self._left
        return loaded_version(self.model) if last is None else last.state.installed

    def shutdown(self) -> None:
        """Leaves the job, and those of adapters. The parameters stay as they are."""
        if self._slots is not None:
            self._slots.close()
        self._leave()

    def _leave(self) -> None:
        if self._shard is not None:
            self._close_orders()
            self._left, self._shard = self._shard, None
            self._left.close()

    def _close_orders(self) -> None:
        if self.orders is not None:
            self.orders.close()
            self.orders = None

    @staticmethod
    def trainer_init(init_info: dict[str, Any]) -> Any:
        """How trainers join in vLLM up to 0.26: `init_info` has the fields of `TrainerSettings`, and as
        `client` the engine, or a list of several. Returns the `group` that `trainer_send_weights` takes."""
        from ..engine.trainer import TrainerSettings
        from ..trainers.trl import WeightTransfer

        if "client" not in init_info:
            raise _core.Misuse('init_info has no "client": give the engine, an HTTPEngine(url) say')
        settings = {name: value for name, value in init_info.items() if name != "client"}
        return WeightTransfer(init_info["client"], TrainerSettings(**settings))

    @staticmethod
    def trainer_send_weights(iterator: Any, trainer_args: Any) -> None:
        """How trainers send in vLLM up to 0.27: publishes what `iterator` hands out, and makes all calls of
        an update itself. `trainer_args` has the `group`, as an entry or an attribute."""
        found: Any = trainer_args.get("group") if isinstance(trainer_args, dict) else trainer_args.group
        if not hasattr(found, "send_weights"):
            raise _core.Misuse("trainer_args needs the group that WeightcastEngine.trainer_init has returned")
        found.send_weights(iterator)

    def _joined(self) -> EngineShard:
        if self._shard is None:
            raise _core.Misuse(
                "this engine has not joined a job: call init_weight_transfer_engine "
                '({"model": ..., "server": ...}) first'
            )
        return self._shard

    def _refuse_adapters(self) -> None:
        held = {} if self._slots is None else self._slots.held()
        if held:
            raise _core.Misuse(
                f"LoRA adapters of this engine ({', '.join(held)}) were trained on the weights it holds; "
                "take them out first, with slot(name).unload() of the HTTPEngine or LocalEngine"
            )

    def _refuse_foreign_base(self, settings: Settings) -> None:
        last = self._shard or self._left
        if last is not None and not _same_job(last.settings, settings):
            self._refuse_adapters()

    def _refuse_moving_experts(self, settings: Settings) -> None:
        parallel = self.parallel_config
        if not getattr(parallel, "enable_eplb", False):
            return
        if getattr(parallel.eplb_config, "use_async", False):
            raise _core.Misuse(
                "this engine moves experts between its workers in the background (EPLB, use_async), and "
                "would move an expert's former weights over those of an update; start it with "
                "--eplb-config.use_async=false"
            )
        if settings.landing != "staged":
            raise _core.Misuse(
                "this engine moves experts between its workers (enable_eplb), also while others read the "
                "parameters; let bytes land beside them: landing='staged'"
            )

    def _read(self, settings: Settings, draft: Draft | None) -> Any:
        known = {"vllm_config": self.vllm_config, **settings.reading()}
        if draft is None:
            return lambda catalog: read(self.model, catalog, **known)
        return lambda catalog: read_with(draft, self.model, catalog, **known)


def _same_job(one: Settings, other: Settings) -> bool:
    """Whether versions of the same number are the same."""
    return (one.model, one.job) == (other.model, other.job)
