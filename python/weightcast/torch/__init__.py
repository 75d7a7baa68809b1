"""Layouts and replicas read off torch modules: plain, FSDP2, tensor-parallel."""

from .module import layout, replica

__all__ = ["layout", "replica"]
