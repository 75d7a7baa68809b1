"""Has vLLM leave linear weights on CPUs as they were loaded, as it does on GPUs, if `WEIGHTCAST_TEST_UNPACKED` asks for it:
then an install is a copy into the parameters, and bytes can land there at once."""

import os
import sys
from typing import Any

from .stops import Finder


def place() -> None:
    if "WEIGHTCAST_TEST_UNPACKED" in os.environ:
        sys.meta_path.insert(0, Finder("vllm._custom_ops", _put))


def _put(module: Any) -> None:
    module._supports_onednn = False
