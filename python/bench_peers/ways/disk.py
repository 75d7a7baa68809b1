"""A checkpoint in safetensors, through a file system."""

import os

from safetensors import safe_open
from safetensors.torch import save_file

from .way import Way


class Disk(Way):
    """The sender writes a file and rings; readers map it and copy the tensors out."""

    def send(self, version: int) -> None:
        """Not forced to the disk itself: readers of this host find it in the page cache."""
        file = os.path.join(self.place.folder, "version.safetensors")
        save_file(self.tensors, file + ".part")
        os.rename(file + ".part", file)
        self.place.ring(file.encode())
        self.place.heard()

    def receive(self, version: int) -> None:
        """Into its own tensors."""
        (file,) = self.place.heard()
        with safe_open(file.decode(), "pt") as checkpoint:
            for name, tensor in self.tensors.items():
                tensor.copy_(checkpoint.get_tensor(name))
        self.place.ring()

    def tidy(self) -> None:
        """Removes the file."""
        if self.place.sends:
            os.unlink(os.path.join(self.place.folder, "version.safetensors"))
