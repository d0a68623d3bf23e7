"""Engines' names for the parts of their metadata, and the role of each."""

from __future__ import annotations

from typing import Any

_NAMES = {
    "kv_lens": "cache_seqlens cache_seqlens_int32 context_lens kv_lens seq_lens seq_lens_k",
    "cu_seqlens_q": "cu_seqlens_q qo_indptr query_start_loc",
    "cu_seqlens_k": "cu_seqlens_k",
    "page_table": "block_table block_table_tensor block_tables page_table",
    "kv_indptr": "kv_indptr paged_kv_indptr",
    "kv_indices": "kv_indices paged_kv_indices",
    "last_page_len": "kv_last_page_len last_page_len paged_kv_last_page_len",
    "slots": "out_cache_loc out_loc slot_mapping slots",
    "positions": "positions",
    "custom_mask": "custom_mask",
    "max_seqlen_q": "max_query_len max_seq_len_q max_seqlen_q",
    "max_seqlen_k": "max_seq_len max_seq_len_k max_seqlen_k",
}
ROLES = {name: role for role, names in _NAMES.items() for name in names.split()}
SCALARS = frozenset({"max_seqlen_q", "max_seqlen_k"})  # roles that launches take by value
_RARE = "q_lens prefix_lens q_ends kv_ends swa_page_table swa_kv_indptr swa_kv_indices swa_out_cache_loc"  # which only their own names tell
KNOWN = frozenset([*_NAMES, *_RARE.split()])


def named_roles(metadata: Any, scalars: bool = True) -> tuple[dict[str, Any], dict[str, str]]:
    """The value of each role among an object's attributes, and the attribute's name. scalars: those of SCALARS, too."""
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name in [*getattr(metadata, "__dict__", {}), *getattr(type(metadata), "__slots__", ())]:
        role, value = ROLES.get(name), getattr(metadata, name, None)
        if role is not None and value is not None and (scalars or role not in SCALARS):
            values[role], names[role] = value, name
    return values, names
