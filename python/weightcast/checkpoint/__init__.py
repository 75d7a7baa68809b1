"""Checkpoints on disk as replicas: `pull` writes a version as safetensors files, `publish` publishes such
files in place.

On the command line: `weightcast pull MODEL@VERSION DIR`, `weightcast push DIR`.
"""

from .publish import Published, publish
from .pull import Pulled, pull

__all__ = ["Published", "Pulled", "publish", "pull"]
