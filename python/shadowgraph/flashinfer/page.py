"""flashinfer.page: new keys and values, stored in pages."""

from __future__ import annotations

from typing import Any

from .. import _core
from .._upstream import check_shapes, empty, fill, host, launch, wrong
from ._attend import paged, same_type


def _slots(batch_indices: Any, positions: Any, kv_indices: Any, kv_indptr: Any, kv_last_page_len: Any, page_size: int) -> Any:
    """int64 slot of each new token, -1 of one without a request."""
    if len(kv_indptr) != len(kv_last_page_len) + 1:
        raise wrong("len.batch", "kv_indptr", f"{len(kv_last_page_len) + 1} entries, by kv_last_page_len", str(len(kv_indptr)))
    batch, place, pages, starts = (host(x).astype("int64") for x in (batch_indices, positions, kv_indices, kv_indptr))
    check_shapes(positions=(place, batch.shape))
    there = batch >= 0
    if (batch[there] >= len(starts) - 1).any():
        row = int((batch >= len(starts) - 1).argmax())
        raise wrong("slot.range", "batch_indices", f"< {len(starts) - 1}", str(batch[row]), row)
    safe = batch.clip(0)
    entry = starts[safe] + place // page_size
    outside = there & ((place < 0) | (entry >= starts[safe + 1]))
    if outside.any():
        row = int(outside.argmax())
        held = (starts[safe[row] + 1] - starts[safe[row]]) * page_size
        raise wrong("slot.range", "positions", f"0 <= position < {held}, as kv_indptr has pages", str(place[row]), row)
    if len(pages) < starts[-1]:
        raise wrong("len.total", "kv_indptr", f"<= {len(pages)} page ids", str(starts[-1]), len(starts) - 1)
    if not len(pages):
        return batch.clip(max=-1)
    slots = pages[entry.clip(0, len(pages) - 1)] * page_size + place % page_size
    slots[~there] = -1
    return slots


_NAMES = {"out_cache_loc": "kv_indices", "k_cache": "paged_kv_cache", "v_cache": "paged_kv_cache"}
_NAMES |= {"k": "append_key", "v": "append_value"}
_MLA_NAMES = {"out_cache_loc": "kv_indices", "k_cache": "ckv_cache", "v_cache": "kpe_cache", "k": "append_ckv", "v": "append_kpe"}


def append_paged_kv_cache(
    append_key: Any,
    append_value: Any,
    batch_indices: Any,
    positions: Any,
    paged_kv_cache: Any,
    kv_indices: Any,
    kv_indptr: Any,
    kv_last_page_len: Any,
    kv_layout: str = "NHD",
) -> None:
    """Stores append_key and append_value [nnz, Hk, D]: row i at positions[i] of request batch_indices[i], of which a
    negative one stores nothing."""
    cache = paged(paged_kv_cache, kv_layout)[0]
    same_type(paged_kv_cache=cache.k_cache, append_key=append_key, append_value=append_value)
    first = cache.k_cache.shape
    page_size = first[len(first) - (3 if kv_layout == "NHD" else 2)]
    slots = lambda: _slots(batch_indices, positions, kv_indices, kv_indptr, kv_last_page_len, page_size)  # noqa: E731
    launch(_core.store_kv, _NAMES, k=append_key, v=append_value, out_cache_loc=slots, cache=cache)


def append_paged_mla_kv_cache(
    append_ckv: Any,
    append_kpe: Any,
    batch_indices: Any,
    positions: Any,
    ckv_cache: Any,
    kpe_cache: Any,
    kv_indices: Any,
    kv_indptr: Any,
    kv_last_page_len: Any,
) -> None:
    """The same of latents: append_ckv [nnz, 512], append_kpe [nnz, 64], caches [pages, page_size, ..]."""
    slots = lambda: _slots(batch_indices, positions, kv_indices, kv_indptr, kv_last_page_len, ckv_cache.shape[1])  # noqa: E731
    same_type(ckv_cache=ckv_cache, kpe_cache=kpe_cache, append_ckv=append_ckv, append_kpe=append_kpe)
    cache = ckv_cache[:, :, None], kpe_cache[:, :, None]
    launch(_core.store_kv, _MLA_NAMES, k=append_ckv[:, None], v=append_kpe[:, None], out_cache_loc=slots, cache=cache)


def get_batch_indices_positions(
    append_indptr: Any, seq_lens: Any, nnz: int, batch_indices: Any = None, positions: Any = None
) -> tuple[Any, ...]:
    """The request of each new token, and the token's place in it; seq_lens count the new tokens. Rows behind the last token's have
    request -1. Returns (batch_indices, positions), int32 [nnz]."""
    made = [empty(append_indptr, (nnz,), "int32") if given is None else given for given in (batch_indices, positions)]

    def write() -> None:
        import numpy

        starts, lens = host(append_indptr).astype("int64"), host(seq_lens).astype("int64")
        new = starts[1:] - starts[:-1]
        check_shapes(seq_lens=(lens, new.shape))
        rows = numpy.full(nnz, -1, numpy.int32)
        places = numpy.zeros(nnz, numpy.int32)
        total = min(nnz, int(starts[-1]))
        rows[:total] = numpy.repeat(numpy.arange(len(new)), new)[:total]
        places[:total] = (numpy.arange(starts[-1]) + numpy.repeat(lens - new - starts[:-1], new))[:total]
        fill(made[0], rows)
        fill(made[1], places)

    launch(write, {})
    return tuple(made)


def get_seq_lens(kv_indptr: Any, kv_last_page_len: Any, page_size: int) -> Any:
    """Keys of each request, int32."""
    return (kv_indptr[1:] - kv_indptr[:-1] - 1).clip(0) * page_size + kv_last_page_len
