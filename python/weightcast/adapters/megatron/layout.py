"""The layout of a rank of Megatron."""

from typing import Any

from torch import distributed, nn

from ... import _core
from ... import layout as layouts
from ...memory import TORCH
from ...names import NameMap, PublishedSlice, Rename, check
from ...torch.module import exchange_over
from ..catalog import Catalog, Entry, catalog_of
from . import held, where
from . import names as naming
from .rows import Heads, within


def layout(
    model: Any,
    *,
    vocab_size: int | None = None,
    names: NameMap | None = None,
    rename: Rename | None = None,
    expect: Any = None,
    beside: bool = False,
    synced: bool = False,
) -> layouts.Layout:
    """The layout of what this rank holds of a GPT model of Megatron-core, in place, under the names of the
    published checkpoint: any tensor, pipeline, expert and expert tensor parallelism.

    `model` is a model or a list of its chunks, wrapped or not. `vocab_size` is that of the checkpoint: rows
    of a padded vocabulary beyond are left out; without it, those of `expect` are taken, else all rows are
    published. `names` maps keys of `sharded_state_dict` to published names where weightcast's own
    do not fit; a tuple of three is queries, keys and values. `rename` maps a published name to another, or to
    None to leave it out. `expect` is a catalog (see `weightcast.adapters.catalog.catalog_of`) that all ranks
    together must meet name by name and shape by shape; with it, all ranks call this together. `beside` is
    that of `weightcast.Layout`.

    Raises `LayoutMismatch` for a parameter without a known name, or of other rows than its config says, and
    `Misuse` for parameters that Megatron cannot show in place. With `overlap_param_gather`, parameters are
    complete only after the next forward pass begins: `synced` says that every model chunk's
    `start_param_sync(force_sync=True)` is called before each `publish`.
    """
    if not synced:
        _refuse_late_gathers(model)
    catalog = None if expect is None else catalog_of(expect)
    listed = layouts.Layout(beside=beside)
    if groups := where.groups(model):
        listed.exchange = exchange_over(groups)
    published: Catalog = {}
    chunks = held.chunks(model)
    owners = []
    for chunk in chunks:
        reader = _Reader(chunk, vocab_size, names, rename, catalog)
        owners.append(_add(listed, chunk, reader))
        published |= reader.published
    listed.origins.module(chunks[0])
    for one in held.slots(owners):
        listed.origins.slot(one.name, one.owner, one.key)
    if catalog is not None:
        check(_of_all_ranks(published), catalog)
    return listed


def _add(listed: layouts.Layout, chunk: nn.Module, reader: "_Reader") -> held.Owners:
    """Adds what a model holds to a layout."""
    owners = held.Owners(chunk)
    for shard in held.sharded(chunk):
        held.refuse(shard)
        if not shard.data.numel():
            continue
        owners.see(shard.key, shard.data)
        slices = reader.slices(shard)
        if slices:
            parts = [layouts.part_of(one) for one in slices]
            listed.add(shard.data, parts, along=0, pad=shard.allow_shape_mismatch)
    owners.check()
    return owners


class _Reader:
    """Says what of the published checkpoint the shards of a model are."""

    def __init__(
        self,
        chunk: Any,
        vocab_size: int | None,
        names: NameMap | None,
        rename: Rename | None,
        catalog: Catalog | None,
    ) -> None:
        if getattr(chunk.config, "layernorm_zero_centered_gamma", False):
            raise _core.Misuse(
                "layernorm_zero_centered_gamma: norms are stored less one, as few checkpoints have them; "
                "train without it"
            )
        config = chunk.config
        self._heads = Heads(config.num_attention_heads, config.num_query_groups, config.kv_channels)
        self._maps = [*([] if names is None else [names]), naming.map_for(config)]
        self._vocab_size, self._rename, self._catalog = vocab_size, rename, catalog
        #: What all ranks have of the tensors that were read.
        self.published: Catalog = {}

    def slices(self, shard: Any) -> list[PublishedSlice]:
        """What a shard is, one slice below the other."""
        found = self._names(shard.key)
        if not found:
            return []
        if len(found) == 1:
            slices = [self._slice(found[0], shard)]
        else:
            slices = self._attention(found, shard)
        dtype = str(shard.data.dtype).removeprefix("torch.")
        for one in slices:
            self.published[one.name] = Entry(one.shape, TORCH.get(dtype, dtype))
        return slices

    def _names(self, key: str) -> tuple[str, ...]:
        found = naming.published(key, self._maps)
        if self._rename is None:
            return found
        renamed = [self._rename(name) for name in found]
        kept = tuple(name for name in renamed if name is not None)
        if kept and len(kept) < len(renamed):
            raise _core.Misuse(
                f"{key}: rename leaves out some of {', '.join(found)}, which lie mixed; keep all, or none"
            )
        return kept

    def _slice(self, name: str, shard: Any) -> PublishedSlice:
        shape, start, length = list(shard.global_shape), list(shard.global_offset), list(shard.local_shape)
        if shard.allow_shape_mismatch:
            shape[0] = self._vocabulary(name, shape[0])
            start[0], length[0] = within(shape[0], start[0], length[0])
        return PublishedSlice(name, tuple(shape), tuple(start), tuple(length))

    def _vocabulary(self, name: str, padded: int) -> int:
        size = self._vocab_size
        if size is None and self._catalog is not None and name in self._catalog:
            size = self._catalog[name].shape[0]
        if size is not None and size > padded:
            raise _core.LayoutMismatch(
                f"{name} has {size} rows in the checkpoint, and {padded} in the model; is vocab_size right?"
            )
        return padded if size is None else size

    def _attention(self, found: tuple[str, ...], shard: Any) -> list[PublishedSlice]:
        """Queries, keys and values, which lie mixed."""
        rows, *columns = shard.global_shape
        members = self._heads.members()
        if len(found) != len(members) or rows != sum(members):
            raise _core.LayoutMismatch(
                f"{shard.key} has {rows} rows; {', '.join(found)} of the model's config are {sum(members)}: "
                f"{self._heads.queries} query heads in {self._heads.groups} groups, {self._heads.channels} "
                "rows each (attention_output_gate and layers with heads of their own are not laid out)"
            )
        inner = (0,) * len(columns), tuple(columns)
        return [
            PublishedSlice(found[of], (members[of], *columns), (first, *inner[0]), (count, *inner[1]))
            for of, first, count in self._heads.runs(shard.global_offset[0], shard.local_shape[0])
        ]


def _refuse_late_gathers(model: Any) -> None:
    for wrapper in held.wrappers(model):
        config = getattr(wrapper, "ddp_config", None)
        if getattr(config, "overlap_param_gather", False):
            raise _core.Misuse(
                "overlap_param_gather: after optimizer.step() a rank has old parameters until the next "
                "forward pass; call start_param_sync(force_sync=True) of every model chunk before each "
                "publish and say so with layout(synced=True), or train without it"
            )


def _of_all_ranks(published: Catalog) -> Catalog:
    """What all ranks publish, if there are several."""
    ranks = distributed.get_world_size() if distributed.is_initialized() else 1
    if ranks == 1:
        return published
    each: list[Any] = [None] * ranks
    distributed.all_gather_object(each, published)
    return {name: entry for one in each for name, entry in one.items()}
