"""What a trainer asks of an SGLang engine's workers, in the form of SGLang's own request for tensors.

`/update_weights_from_tensor` takes one pickle per tensor-parallel rank. SGLang unpickles it in each rank
(its `SafeUnpickler` lets through tensors, and no code), moves the tensor to the rank's device, and calls
the custom weight loader with a list of (name, tensor). Here that list has one entry: its name is the JSON
of what is asked, its tensor is empty. The frame around the JSON is constant: nothing is pickled.
"""

import base64
import json
import struct
from typing import Any

#: The loader's name: SGLang's `--custom-weight-loader`, and `load_format` in requests.
LOADER = "weightcast.adapters.sglang.load"

#: `[(`: a list, its one tuple, and that tuple's string follows.
_BEFORE = b"\x80\x02]X"
#: `, torch.ByteTensor())]`
_AFTER = b"ctorch\nByteTensor\n)R\x86a."


def payload(do: str, **named: Any) -> str:
    """What one rank gets: asks its loader to `do` something."""
    text = json.dumps({"do": do, **named}).encode()
    return base64.b64encode(_BEFORE + struct.pack("<I", len(text)) + text + _AFTER).decode()
