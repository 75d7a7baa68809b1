"""The layout of a live engine's parameters, and what follows an update of them."""

from .layout import LiveLayout

__all__ = ["LiveLayout"]
