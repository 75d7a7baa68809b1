"""The vLLM adapter against vLLM itself."""

from . import cpu  # noqa: F401  before anything imports vLLM
