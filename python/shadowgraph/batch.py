"""A step as a scheduler knows it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import _core

_NUMBERS = frozenset(
    "page_size pool_pages requests rows topk num_steps num_draft_tokens draft_step seq_lens_are_prefixes".split()
)
_ARRAYS = frozenset(
    "prefix_lens q_lens kv_lens cu_seqlens_q stored mask req_to_token req_pool_indices seq_lens extend_lens "
    "orig_seq_lens encoder_lens out_cache_loc positions full_to_swa custom_mask".split()
)
_LARGEST_REPR = 4096  # entries of a table


def _flat(rows: Iterable[Any]) -> tuple[list[int], list[int]]:
    """Offsets and entries of rows."""
    indptr, entries = [0], []
    for row in rows:
        entries.extend(row.tolist() if hasattr(row, "tolist") else row)
        indptr.append(len(entries))
    return indptr, entries


class Batch:
    """Who runs, with which keys, and where new tokens are stored: metadata is made from it, and judged by it.

    A row is a request; in a draft_decode, one of its branches. Attributes, as numbers and lists:

    mode, page_size, pool_pages, requests, rows, topk, num_steps, num_draft_tokens, draft_step
    prefix_lens, q_lens, kv_lens  of each row: tokens before the step's, the step's, and both
    cu_seqlens_q                  offsets of new tokens, from 0
    keys                          of each row the slot of each token, the new ones last
    stored                        the slot of each new token
    mask                          row by row [q_len, kv_len], where a tree of drafts has one
    req_to_token, req_pool_indices, seq_lens, extend_lens, orig_seq_lens, encoder_lens, out_cache_loc, positions,
    full_to_swa, custom_mask      as an engine has them; empty where the batch has none

    It cannot be changed. repr(batch) evaluates to an equal one, unless its table is large.
    """

    __slots__ = ("_handle", "_by_keys")

    def __init__(self, handle: _core.BatchHandle, by_keys: bool = False):
        self._handle = handle
        self._by_keys = by_keys

    @classmethod
    def from_slots(
        cls, mode: str, keys: Iterable[Any], q_lens: Any = None, *, page_size: int = 1, pool_pages: int = 0, **more: Any
    ) -> Batch:
        """keys: of each request the slot of each token, the new ones last. q_lens: its new tokens, where the mode does
        not imply them. more: of _core.batch_new (out_cache_loc, positions, ...)."""
        indptr, entries = _flat(keys)
        more |= {"key_indptr": indptr, "keys": entries, "q_lens": q_lens}
        return cls(_core.batch_new(mode, page_size=page_size, pool_pages=pool_pages, **more), by_keys=True)

    @classmethod
    def from_pages(
        cls,
        mode: str,
        pages: Iterable[Any],
        kv_lens: Any,
        q_lens: Any = None,
        *,
        page_size: int,
        pool_pages: int = 0,
        **more: Any,
    ) -> Batch:
        """pages: of each request its page ids. kv_lens: its tokens, the new ones counted."""
        keys = []
        for row, kv_len in zip(pages, kv_lens, strict=True):
            row, kv_len = (row.tolist() if hasattr(row, "tolist") else row), int(kv_len)
            if kv_len > len(row) * page_size:
                raise ValueError(f"from_pages: {kv_len} tokens are more than {len(row)} pages of {page_size} hold")
            keys.append([row[i // page_size] * page_size + i % page_size for i in range(kv_len)])
        return cls.from_slots(mode, keys, q_lens, page_size=page_size, pool_pages=pool_pages, **more)

    @classmethod
    def from_table(
        cls,
        mode: str,
        req_to_token: Any,
        req_pool_indices: Any,
        seq_lens: Any,
        q_lens: Any = None,
        *,
        page_size: int = 1,
        pool_pages: int = 0,
        **more: Any,
    ) -> Batch:
        """As an engine's scheduler has it: request i's tokens are in row req_pool_indices[i] of req_to_token. seq_lens
        count the new tokens as engines have it; seq_lens_kind="full" or "prefix" says otherwise."""
        more |= {"req_to_token": req_to_token, "req_pool_indices": req_pool_indices, "seq_lens": seq_lens}
        return cls(_core.batch_new(mode, page_size=page_size, pool_pages=pool_pages, q_lens=q_lens, **more))

    @property
    def mode(self) -> str:
        return _core.batch_mode(self._handle)

    @property
    def keys(self) -> list[list[int]]:
        indptr, entries = self.array("key_indptr"), self.array("keys")
        return [entries[a:b].tolist() for a, b in zip(indptr, indptr[1:])]

    def array(self, name: str) -> memoryview:
        """An array without a list's cost: numpy.asarray(batch.array("stored"))."""
        return _core.batch_array(self._handle, name)

    def __getattr__(self, name: str) -> Any:
        if name in _NUMBERS:
            return _core.batch_number(self._handle, name)
        if name in _ARRAYS:
            return self.array(name).tolist()
        raise AttributeError(f"a Batch has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_NUMBERS, *_ARRAYS})

    def _parts(self) -> dict[str, Any]:
        """The arguments that make this batch again, without defaults."""
        parts = {} if self._by_keys else {n: getattr(self, n) for n in ("req_to_token", "req_pool_indices", "seq_lens")}
        if self._by_keys:
            parts["keys"] = self.keys
        parts["q_lens"] = self.extend_lens
        for name in ("orig_seq_lens", "encoder_lens", "positions", "full_to_swa", "custom_mask"):
            parts[name] = getattr(self, name)
        if self.out_cache_loc != self.stored:
            parts["out_cache_loc"] = self.out_cache_loc
        if self.topk != 1:
            parts["topk"] = self.topk
        parts |= {n: getattr(self, n) for n in ("page_size", "pool_pages", "num_steps", "num_draft_tokens", "draft_step")}
        if not self._by_keys:
            parts["seq_lens_kind"] = "prefix" if self.seq_lens_are_prefixes else "full"
        return {name: value for name, value in parts.items() if value or name in ("keys", "req_to_token", "seq_lens")}

    def __repr__(self) -> str:
        if not self._by_keys and self.array("req_to_token").nbytes > 4 * _LARGEST_REPR:
            return f"<Batch {self}>"
        made = "from_slots" if self._by_keys else "from_table"
        return f"Batch.{made}({self.mode!r}, {', '.join(f'{k}={v!r}' for k, v in self._parts().items())})"

    def __str__(self) -> str:
        """decode, page_size 2, prefix_lens [3, 0], q_lens [1, 1]"""
        return _core.batch_text(self._handle)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Batch) and self.mode == other.mode and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(str(self))
