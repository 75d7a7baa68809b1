"""Ray's direct transport over weightcast: tensors that an actor's method returns stay where they are, and
whoever gets the reference reads them from there, verified, past Ray's object store.

    wcr.register_transport()                            # the driver, before it creates actors

    @ray.remote(enable_tensor_transport=True)
    class Trainer:
        @ray.method(tensor_transport="weightcast")
        def weights(self): return [self.weight, self.bias]
"""

import itertools
import threading
from dataclasses import dataclass
from typing import Any

import ray
import torch
from ray.experimental.rdt.tensor_transport_manager import (
    CommunicatorMetadata,
    TensorTransportManager,
    TensorTransportMetadata,
)

from ...handle import HURRY, Handle
from ...layout import Layout
from ...replica import Replica
from .weights import open
from .where import where

#: The transport's name, as Ray writes it.
TRANSPORT = "WEIGHTCAST"
#: Seconds that a transfer may take, as Ray's own may.
DEADLINE = 60.0
#: Seconds that readers have when the last reference is gone.
DRAIN = 30.0
#: The one version of each object.
VERSION = 1

_numbers = itertools.count()


@dataclass
class PublishedMetadata(TensorTransportMetadata):
    """Where an object's tensors are: the model that they are published as."""

    model: str = ""


class WeightcastTransport(TensorTransportManager):
    """What Ray calls in the actor that has an object, and in those that get it."""

    def __init__(self) -> None:
        self._published: dict[str, Handle] = {}
        self._reading: dict[str, Handle] = {}
        self._lock = threading.Lock()

    def tensor_transport_backend(self) -> str:
        """The name."""
        return TRANSPORT

    @staticmethod
    def is_one_sided() -> bool:
        """Readers read; the source's code takes no part."""
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        """Reading can be broken off: nobody has to be killed for it."""
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        """Every actor of the job has it."""
        return True

    def extract_tensor_transport_metadata(
        self, obj_id: str, rdt_object: list[torch.Tensor]
    ) -> PublishedMetadata:
        """Publishes the tensors, once for each object."""
        meta = PublishedMetadata(
            tensor_meta=[(tensor.shape, tensor.dtype) for tensor in rdt_object],
            tensor_device=rdt_object[0].device.type if rdt_object else None,
            model=f"ray/{obj_id}",
        )
        with self._lock:
            if obj_id not in self._published and _nbytes(rdt_object):
                self._published[obj_id] = _publish(meta.model, rdt_object)
        return meta

    def get_communicator_metadata(
        self, src_actor: Any, dst_actor: Any, backend: str | None = None
    ) -> CommunicatorMetadata:
        """Nothing: readers find the source by the reference server."""
        return CommunicatorMetadata()

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: PublishedMetadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[torch.Tensor] | None = None,
    ) -> list[torch.Tensor]:
        """Reads the tensors into the buffers that are given, or into new ones."""
        meta = tensor_transport_metadata
        tensors = target_buffers or [
            torch.empty(shape, dtype=dtype, device=meta.tensor_device) for shape, dtype in meta.tensor_meta
        ]
        if not _nbytes(tensors):
            return tensors
        handle = open(meta.model, _named("reader"))
        with self._lock:
            self._reading[obj_id] = handle
        try:
            handle.register(_layout(tensors), deadline=DEADLINE)
            handle.replicate(VERSION, deadline=DEADLINE)
        finally:
            with self._lock:
                self._reading.pop(obj_id, None)
            handle.close(deadline=HURRY)
        return tensors

    def send_multiple_tensors(
        self, tensors: list[torch.Tensor], tensor_transport_metadata: Any, communicator_metadata: Any
    ) -> None:
        """Never called of a transport whose readers read."""
        raise NotImplementedError("weightcast's readers read by themselves")

    def garbage_collect(
        self, obj_id: str, tensor_transport_meta: PublishedMetadata, tensors: list[torch.Tensor]
    ) -> None:
        """Nobody has a reference any more: takes the tensors back, once readers are done."""
        with self._lock:
            handle = self._published.pop(obj_id, None)
        if handle is not None:
            # Ray's own thread must not wait for readers.
            threading.Thread(target=handle.close, kwargs={"deadline": DRAIN}, daemon=True).start()

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """Ends a read that is under way."""
        with self._lock:
            handle = self._reading.pop(obj_id, None)
        if handle is not None:
            handle.close(deadline=HURRY)


def register_transport() -> None:
    """Makes the transport known to Ray, under the name `weightcast`. The driver calls it, after `serve` and
    before it creates actors that use the transport. Again: does nothing."""
    from ray.experimental.rdt.util import transport_manager_info

    if TRANSPORT not in transport_manager_info:
        ray.experimental.register_tensor_transport(
            TRANSPORT, ["cpu", "cuda"], WeightcastTransport, torch.Tensor
        )


def _publish(model: str, tensors: list[torch.Tensor]) -> Handle:
    handle = open(model, _named("source"), role="trainer", epoch="new")
    try:
        handle.register(_layout(tensors), deadline=DEADLINE)
        handle.publish(VERSION, deadline=DEADLINE)
    except BaseException:
        handle.close(deadline=HURRY)
        raise
    return handle


def _named(role: str) -> Replica:
    """A name that no other has, not even another read of this process."""
    worker = ray.get_runtime_context().get_worker_id()[:12]
    return where().replica(f"{role}-{worker}-{next(_numbers)}", shard=0)


def _layout(tensors: list[torch.Tensor]) -> Layout:
    """The tensors as bytes, so that all shapes and types are the same to both sides."""
    listed = Layout()
    for index, tensor in enumerate(tensors):
        if tensor.nbytes:
            listed.add(tensor.detach().contiguous().view(-1).view(torch.uint8), str(index))
    return listed


def _nbytes(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
