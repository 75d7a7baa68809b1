"""Layouts and replicas read off trees of JAX arrays: to be published, not filled, since such arrays never
change."""

from .layout import layout
from .replicas import replica

__all__ = ["layout", "replica"]
