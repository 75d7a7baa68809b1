"""The vLLM adapter against vLLM itself."""

from . import cpu  # before anything imports vLLM
