"""Device meshes: where this rank is in one, and which of them has all ranks of the others."""

from collections.abc import Sequence

from torch.distributed import device_mesh
from torch.distributed.device_mesh import DeviceMesh

from .. import _core


def coordinate_of(mesh: DeviceMesh) -> tuple[int, ...]:
    """Where this rank is in a mesh. Raises `Misuse` if it is not in there."""
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        raise _core.Misuse("this rank is not part of the module's device mesh")
    return tuple(coordinate)


def root_of(mesh: DeviceMesh) -> DeviceMesh:
    """The mesh that a mesh was cut out of; itself, if it was made by itself."""
    if hasattr(mesh, "_get_root_mesh"):
        return mesh._get_root_mesh()
    return device_mesh._mesh_resources.get_root_mesh(mesh)  # before torch 2.8


def covering(meshes: Sequence[DeviceMesh]) -> DeviceMesh:
    """The mesh, of these and of those they were cut out of, that has all ranks of all of them. Raises
    `Misuse` where there is none."""
    roots = [root_of(mesh) for mesh in meshes]
    largest = max(roots, key=lambda mesh: mesh.size())
    ranks = set(largest.mesh.flatten().tolist())
    for root in roots:
        if beyond := set(root.mesh.flatten().tolist()) - ranks:
            raise _core.Misuse(
                f"parameters lie on device meshes of which none has all ranks: {root} has ranks "
                f"{sorted(beyond)[:4]}, which {largest} does not have; cut meshes out of one "
                "(init_device_mesh, then mesh[name]), or give group=, the process group of all ranks that "
                "train this module"
            )
    return largest
