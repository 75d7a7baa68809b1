"""In every Python process of an engine under test: the CPU's kernels, before vLLM chooses them, and the
places where a test may stop the engine."""

import tests_vllm  # noqa: F401
from tests_vllm.live import stops, unpacked

stops.place()
unpacked.place()
