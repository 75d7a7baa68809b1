"""SGLang's own HTTP server, over its own session and weight updater, on a stand-in of its scheduler.

Real: the routes and request classes, the tokenizer manager's control calls with their locks, the
scheduler's handlers of pauses, sessions, updates and versions, the weight updater of the model runner, the
model class. Stands in: the processes between them (here a thread, and a queue), requests, the cache.
"""

import asyncio
import queue
import sys
import threading
import types
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from . import absent, engine

# What the server imports, and its routes for weights do not use.
absent.ABSENT |= {"jsonschema", "python_multipart", "soundfile"}
loops = types.ModuleType("uvloop")
loops.EventLoopPolicy = asyncio.DefaultEventLoopPolicy  # type: ignore[attr-defined]
sys.modules.setdefault("uvloop", loops)

import uvicorn  # noqa: E402
from sglang.srt import runtime_context  # noqa: E402
from sglang.srt.entrypoints import http_server  # noqa: E402
from sglang.srt.managers import io_struct as io  # noqa: E402
from sglang.srt.managers.scheduler import Scheduler  # noqa: E402
from sglang.srt.managers.scheduler_components.weight_updater import SchedulerWeightUpdaterManager  # noqa: E402
from sglang.srt.managers.tokenizer_manager import TokenizerManager  # noqa: E402
from sglang.srt.managers.tp_worker import BaseTpWorker  # noqa: E402
from sglang.srt.model_executor.model_runner_components.weight_updater import WeightUpdater  # noqa: E402
from sglang.srt.runtime_context import get_model, get_parallel  # noqa: E402
from sglang.srt.utils import DynamicGradMode  # noqa: E402
from sglang.srt.utils.aio_rwlock import RWLock  # noqa: E402
from sglang.utils import TypeBasedDispatcher  # noqa: E402
from torch import nn  # noqa: E402

__all__ = ["Served", "WeightUpdater", "engine", "runtime_context"]


class Worker:
    """A tensor-parallel worker: its model runner is a model, and the real weight updater."""

    deserialize_own_rank = BaseTpWorker.deserialize_own_rank

    def __init__(self, model: nn.Module) -> None:
        self.runner = SimpleNamespace(model=model)
        self.runner.weight_updater = WeightUpdater(
            tp_rank=get_parallel().tp_rank,
            device="cpu",
            gpu_id=0,
            model_config=None,
            custom_weight_loaders=get_model().custom_weight_loader,
            get_model=lambda: model,
            update_model_fields=lambda **_: None,
            recapture_cuda_graph=lambda: None,
            get_model_runner=lambda: self.runner,
        )

    def weight_update_runners(self) -> list[tuple[str, Any]]:
        return [("target", self.runner)]


class Engine:
    """A scheduler: handles one request after the other, and generates nothing."""

    pause_generation = Scheduler.pause_generation
    continue_generation = Scheduler.continue_generation
    handle_update_weight_version = Scheduler.handle_update_weight_version
    record_weight_version_change = Scheduler.record_weight_version_change

    def __init__(self, model: nn.Module) -> None:
        self.__dict__["_engine_paused"] = False
        self._pause_started_at, self._pause_intervals = None, []
        self.enable_overlap = self.enable_overlap_mlx = False
        self.running_batch = SimpleNamespace(reqs=[], batch_is_full=False)
        self.last_batch = self.chunked_req = self.decode_offload_manager = None
        self.hisparse_coordinator = self.disaggregation_mode = None
        self.waiting_queue: list = []
        self.metrics_reporter = SimpleNamespace(current_scheduler_metrics_enabled=False)
        self.kv_events_publisher = SimpleNamespace(publish_kv_events=lambda: None)
        #: What a test looks at.
        self.flushed, self.aborted = 0, 0
        #: Whether there are requests in the queue.
        self.waits = False
        self.heard: list[str] = []
        self.updater = SchedulerWeightUpdaterManager(
            tp_worker=Worker(model),
            draft_worker=None,
            memory_saver_adapter=None,
            flush_cache=self._flush,
            is_fully_idle=lambda **_: True,
            scheduler=self,
        )
        self.handlers: dict[type, Callable[[Any], Any]] = {
            io.PauseGenerationReqInput: self.pause_generation,
            io.ContinueGenerationReqInput: self.continue_generation,
            io.UpdateWeightVersionReqInput: self.handle_update_weight_version,
            io.BeginWeightUpdateReqInput: self.updater.begin_weight_update,
            io.EndWeightUpdateReqInput: self.updater.end_weight_update,
            io.UpdateWeightsFromTensorReqInput: self.updater.update_weights_from_tensor,
            io.FlushCacheReqInput: self._asked_to_flush,
            io.GetInternalStateReq: lambda _: io.GetInternalStateReqOutput(internal_state={}),
            io.AbortReq: self._abort,
        }
        self._asked: queue.Queue = queue.Queue()
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def _engine_paused(self) -> bool:
        """As of the scheduler's own class, by whatever weightcast has put there."""
        watched = getattr(Scheduler, "_engine_paused", None)
        return bool(self.__dict__["_engine_paused"] if watched is None else watched.fget(self))

    @_engine_paused.setter
    def _engine_paused(self, asked: bool) -> None:
        self.__dict__["_engine_paused"] = asked

    def collect_inflight_reqs(self) -> set:
        return set()

    def _asked_to_flush(self, asked: Any) -> Any:
        """As SGLang's: whoever waits until the queue is empty, while generation is paused, waits in vain."""
        if asked.timeout_s and self._engine_paused and self.waits:
            return io.FlushCacheReqOutput(success=False, message="Timed out waiting for idle state")
        return io.FlushCacheReqOutput(success=self._flush())

    def _flush(self, empty_cache: bool = True) -> bool:
        self.flushed += 1
        return True

    def _abort(self, _: Any) -> None:
        self.aborted += 1

    def ask(self, request: Any, answer: Callable[[Any], None]) -> None:
        self._asked.put((request, answer))

    @DynamicGradMode()
    def _run(self) -> None:
        """As SGLang does it, an error in a handler ends the engine, and the server with it."""
        try:
            self._handle_all()
        finally:
            self.ended.set()

    def _handle_all(self) -> None:
        while (asked := self._asked.get()) is not None:
            request, answer = asked
            self.heard.append(type(request).__name__.removesuffix("ReqInput"))
            said = self.handlers[type(request)](request)
            if said is not None:
                answer(said)
            self._asked.task_done()

    def settle(self) -> None:
        """Waits until all has been handled: SGLang answers pauses before the scheduler hears of them."""
        self._asked.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        self._asked.put(None)
        self._thread.join(10)


class Tokenizer(TokenizerManager):
    """The control calls of SGLang's own, to a scheduler in this process."""

    def __init__(self, arguments: Any, engine: Engine) -> None:
        self.server_args, self.engine = arguments, engine
        self.is_pause, self.is_pause_cond = False, asyncio.Condition()
        self.model_update_lock = RWLock()
        self.rid_to_state = {}
        self.enable_metrics, self.mm_processor, self.startup_time = False, None, 0.0
        self.model_path, self.served_model_name, self.is_generation = "a model", "a model", True
        self.model_config = SimpleNamespace(
            is_image_understandable_model=False, is_audio_understandable_model=False, hf_config=None
        )
        self._result_dispatcher = TypeBasedDispatcher([])
        self.init_communicators()

    def auto_create_handle_loop(self) -> None:
        pass

    def _dispatch_to_scheduler(self, request: Any) -> None:
        loop = asyncio.get_running_loop()

        def answer(said: Any) -> None:
            loop.call_soon_threadsafe(self._result_dispatcher, said)

        self.engine.ask(request, answer)

    async def _async_dispatch_to_scheduler(self, request: Any) -> None:
        self._dispatch_to_scheduler(request)


class Served:
    """A model behind SGLang's HTTP server, on loopback."""

    def __init__(self, arguments: Any, model: nn.Module) -> None:
        self.engine = Engine(model)
        self.tokenizer = Tokenizer(arguments, self.engine)
        state = http_server._GlobalState(self.tokenizer, None, {})  # type: ignore[arg-type]
        http_server.set_global_state(state)
        self._server = uvicorn.Server(
            uvicorn.Config(http_server.app, "127.0.0.1", 0, lifespan="off", loop="asyncio", log_level="warning")
        )
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        threading.Thread(target=self._follow, daemon=True).start()
        while not self._server.started:
            assert self._thread.is_alive()
            self._thread.join(0.01)

    def _follow(self) -> None:
        self.engine.ended.wait()
        self._server.should_exit = self._server.force_exit = True

    @property
    def url(self) -> str:
        host, port = self._server.servers[0].sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    def stop(self) -> None:
        self.engine.stop()
        self._thread.join(10)
