"""Layouts and replicas read off torch modules: plain, FSDP2, tensor-parallel; and modules of which
something is made before they are published."""

from .casts import Cast, cast
from .gathered import Gathered, gathered
from .module import exchange, layout
from .recipes import Recipe, recipe
from .replicas import replica
from .sharing import NotShareable, share_
from .viewed import viewed

__all__ = [
    "Cast",
    "Gathered",
    "NotShareable",
    "Recipe",
    "cast",
    "exchange",
    "gathered",
    "layout",
    "recipe",
    "replica",
    "share_",
    "viewed",
]
