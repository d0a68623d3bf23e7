"""A step as a scheduler knows it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import _core
from .report import refused

_NUMBERS = frozenset(
    "page_size pool_pages requests rows topk num_steps num_draft_tokens draft_step seq_lens_are_prefixes".split()
)
_ARRAYS = frozenset(
    "prefix_lens q_lens kv_lens cu_seqlens_q stored mask req_to_token req_pool_indices seq_lens extend_lens "
    "orig_seq_lens encoder_lens out_cache_loc positions full_to_swa custom_mask".split()
)
_PREFIXES = ("target_verify", "draft_decode")  # engines' seq_lens do not count the new tokens there
_LONGEST_REPR = 4096  # tokens


def _list(row: Any) -> list[int]:
    return list(row.tolist() if hasattr(row, "tolist") else row)


def _rows(name: str, rows: Iterable[Any]) -> list[Any]:
    rows = list(rows)
    for i, row in enumerate(rows):
        if not hasattr(row, "__iter__"):
            raise TypeError(f"Batch: {name}[{i}] is {row!r}, expected a list for each request")
    return rows


def _check_rows(name: str, values: list[int], of: str, rows: list[list[int]]) -> None:
    if len(values) != len(rows):
        raise refused("len.total", name, -1, f"one for each of the {len(rows)} requests that {of} has", f"a list of {len(values)}")


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
    choices                       "3.0.1" of a drawn batch: SHADOWGRAPH_CHOICES=3.0.1 draws it again; else ""

    Batches of the same truth are equal, whichever rows of a table they are in. repr(batch) evaluates to an equal one,
    unless it has thousands of tokens.
    """

    __slots__ = ("_handle", "choices")
    _handle: _core.BatchHandle
    choices: str

    def __init__(
        self,
        mode: str,
        *,
        page_size: int = 1,
        prefix_lens: Any = None,
        q_lens: Any = None,
        keys: Iterable[Any] | None = None,
        **more: Any,
    ):
        """mode       "extend" (prefill), "decode", "mixed", "idle", "target_verify", "draft_extend", "draft_extend_v2",
                   "draft_decode", "split_prefill", "dllm_extend", "prebuilt": `shadowgraph list modes` explains them
        page_size  tokens of a page, a power of two
        keys       of each request the slot of each token, the new ones last; or req_to_token, req_pool_indices and
                   seq_lens. A slot is page * page_size + the place in the page
        q_lens     the new tokens of each request, where the mode does not imply them; or with keys prefix_lens, the others
        more       pool_pages, out_cache_loc, positions, full_to_swa, encoder_lens, custom_mask, topk, num_steps,
                   num_draft_tokens and others of _core.batch_new

        Raises ShadowgraphError for numbers that contradict each other, ValueError for a mode that there is not.
        """
        if keys is not None:
            rows = [_list(row) for row in _rows("keys", keys)]
            more["keys"] = [slot for row in rows for slot in row]
            more["key_indptr"] = [0]
            for row in rows:
                more["key_indptr"].append(more["key_indptr"][-1] + len(row))
            if prefix_lens is not None:
                prefix_lens = _list(prefix_lens)
                _check_rows("prefix_lens", prefix_lens, "keys", rows)
                news = [len(row) - n for row, n in zip(rows, prefix_lens)]
                q_lens = news if q_lens is None else _list(q_lens)
                if q_lens != news:
                    raise refused("len.q_extent", "q_lens", -1, f"{news}: the keys behind prefix_lens", q_lens)
        elif more.get("req_to_token") is None:
            raise TypeError("Batch: keys are missing, or req_to_token with req_pool_indices and seq_lens")
        elif prefix_lens is not None:
            raise ValueError("Batch: prefix_lens are for keys; a table has seq_lens")
        self.choices = ""
        self._handle = _core.batch_new(mode, page_size=page_size, q_lens=q_lens, **more)

    @classmethod
    def from_slots(cls, mode: str, keys: Iterable[Any], q_lens: Any = None, **more: Any) -> Batch:
        """keys: of each request the slot of each token, the new ones last."""
        return cls(mode, keys=keys, q_lens=q_lens, **more)

    @classmethod
    def from_pages(
        cls, mode: str, pages: Iterable[Any], kv_lens: Any, q_lens: Any = None, *, page_size: int, **more: Any
    ) -> Batch:
        """pages: of each request its page ids. kv_lens: its tokens, the new ones counted."""
        keys = []
        rows, lens = [_list(row) for row in _rows("pages", pages)], _list(kv_lens)
        _check_rows("kv_lens", lens, "pages", rows)
        for i, (row, kv_len) in enumerate(zip(rows, lens)):
            if kv_len > (most := len(row) * page_size):
                raise refused("len.kv_extent", "kv_lens", i, f"at most {most}, the tokens of {len(row)} pages of {page_size}", kv_len)
            keys.append([row[i // page_size] * page_size + i % page_size for i in range(kv_len)])
        return cls(mode, keys=keys, q_lens=q_lens, page_size=page_size, **more)

    @classmethod
    def from_table(
        cls, mode: str, req_to_token: Any, req_pool_indices: Any, seq_lens: Any, q_lens: Any = None, **more: Any
    ) -> Batch:
        """The step as an engine's scheduler has it: request i's tokens are in row req_pool_indices[i] of req_to_token. seq_lens
        count the new tokens as engines have it; seq_lens_kind="full" or "prefix" says otherwise."""
        more |= {"req_to_token": req_to_token, "req_pool_indices": req_pool_indices, "seq_lens": seq_lens}
        return cls(mode, q_lens=q_lens, **more)

    @classmethod
    def _of(cls, handle: _core.BatchHandle, choices: str = "") -> Batch:
        batch = cls.__new__(cls)
        batch._handle, batch.choices = handle, choices
        return batch

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

    def _table(self) -> dict[str, Any]:
        """The rows of the table that requests name, as far as they reach."""
        table, named = self.req_to_token, self.req_pool_indices
        width = max(map(len, self.keys), default=1) + max(self.encoder_lens, default=0)
        parts: dict[str, Any] = {"req_to_token": [table[row][:width] for row in named], "req_pool_indices": list(range(len(named)))}
        prefixes = bool(self.seq_lens_are_prefixes)
        if prefixes != (self.mode in _PREFIXES):
            parts["seq_lens_kind"] = "prefix" if prefixes else "full"
        return parts | {"seq_lens": self.seq_lens, "q_lens": self.extend_lens}

    def _parts(self) -> dict[str, Any]:
        """The arguments that make this batch again, without defaults."""
        parts: dict[str, Any] = {"page_size": self.page_size}
        if self.mode == "draft_decode" or self.encoder_lens:
            parts |= self._table()  # its rows are no requests, or see other keys than their own
        else:
            parts |= {"prefix_lens": self.prefix_lens, "q_lens": self.q_lens, "keys": self.keys}
        needed = set(parts)
        for name in ("pool_pages", "num_steps", "num_draft_tokens", "draft_step", "encoder_lens", "orig_seq_lens"):
            parts[name] = getattr(self, name)
        parts |= {"full_to_swa": self.full_to_swa, "custom_mask": self.custom_mask}
        if self.topk != 1:
            parts["topk"] = self.topk
        if self.positions != [p for a, b in zip(self.prefix_lens, self.kv_lens) for p in range(a, b)]:
            parts["positions"] = self.positions
        if self.out_cache_loc != self.stored:
            parts["out_cache_loc"] = self.out_cache_loc
        return {name: value for name, value in parts.items() if value or name in needed}

    def __repr__(self) -> str:
        """Batch('decode', page_size=2, prefix_lens=[0], q_lens=[1], keys=[[2]])"""
        if self.array("keys").nbytes > 4 * _LONGEST_REPR:
            return f"<Batch {self}>"
        return f"Batch({', '.join([repr(self.mode), *(f'{k}={v!r}' for k, v in self._parts().items())])})"

    def __str__(self) -> str:
        """decode, page_size 2, prefix_lens [3, 0], q_lens [1, 1]"""
        return _core.batch_text(self._handle)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Batch) and self.mode == other.mode and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(str(self))
