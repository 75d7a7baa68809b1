"""A program: an SGLang engine as in `serving`, that has loaded weights 0. Says its address; then, once for each line that it
hears, what it is, as JSON: `holds`, the number of the weights that its parameters are, to the bit (null if they are none),
`generates`, and the version that it is `stamped` with.

    engine_program.py DIRECTORY

A test may hold it at the places of `tests_vllm.live.stops`; within an install, between two parameters.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests_sglang.live import within
from tests_vllm.live import stops

if __name__ == "__main__":
    stops.place()
    within.place()
    from tests_sglang.live.engine import main

    main(*sys.argv[1:])
