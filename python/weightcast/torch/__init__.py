"""Layouts and replicas read off torch modules: plain, FSDP2, tensor-parallel."""

from .module import exchange, layout, replica

__all__ = ["exchange", "layout", "replica"]
