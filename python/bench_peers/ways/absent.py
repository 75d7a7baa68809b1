"""What is not installed, in words."""

from importlib import import_module


def missing(module: str) -> str | None:
    """Why a library cannot be had; None if it can."""
    try:
        import_module(module)
    except ImportError as error:
        return f"{error} (`make bench-peers` installs it)"
    return None
