"""What the tests share with those of the package."""

from tests.conftest import group, server

__all__ = ["group", "server"]
