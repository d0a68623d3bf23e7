"""Results held against the program's float64 oracle, by the error bound that is derived from the engine's arithmetic.

A test says in plain words which keys each row of q sees; the row becomes a request of its own in a recording
(docs/recordings.md), which `shadowgraph check` judges. So nothing of masks, pages or layouts is shared with the engine.
"""

import json
import pathlib
import struct
import tempfile

import numpy
import torch

from shadowgraph import _core

_TYPES = {"float16": "F16", "bfloat16": "BF16", "float32": "F32", "int32": "I32", "uint8": "U8"}


def _save(path, members, tensors):
    header, data = {"__metadata__": {"case": json.dumps(members)}}, b""
    for name, tensor in tensors.items():
        tensor = torch.as_tensor(tensor).detach().contiguous()
        kind = _TYPES[str(tensor.dtype).rpartition(".")[2]]
        raw = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy().tobytes()
        header[f"case/{name}"] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def _judge(members, tensors):
    """Findings of the program."""
    with tempfile.TemporaryDirectory() as folder:
        case, report = pathlib.Path(folder, "case.safetensors"), pathlib.Path(folder, "report.json")
        _save(case, {"arithmetic": "ours_portable", **members}, tensors)
        code = _core.main(["shadowgraph", "check", str(case), "--format", "json", "--output", str(report)])
        found = json.loads(report.read_text()) if report.exists() else {}
        assert code in (0, 1) and found, (code, found)
        return found.get("findings", [])


def _padded(tensor, width):
    """Zeros behind the last axis."""
    tensor = torch.as_tensor(tensor)
    return torch.cat([tensor, tensor.new_zeros(*tensor.shape[:-1], width - tensor.shape[-1])], -1)


def findings(q, keys, values, out, lse=None, *, base2=False, sm_scale, **more):
    """q [n, H, D]; keys and values of each row of q: [seen, Hk, D], [seen, Hk, Dv]; out [n, H, Dv], lse [n, H].
    more: members and tensors of the recording's form, flashinfer if base2, else fa2."""
    q, out = torch.as_tensor(q), torch.as_tensor(out)
    rows, heads, dim = q.shape
    lens = [len(k) for k in keys]
    keys, values = (torch.cat([torch.as_tensor(t) for t in rows_of]) for rows_of in (keys, values))
    width = max(dim, values.shape[-1])
    q, keys, values, out = (_padded(t, width) for t in (q, keys, values, out))
    starts = numpy.cumsum([0, *lens]).astype(numpy.int32)
    names = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}
    members = {"dtype": names[q.dtype], "kv_dtype": names[keys.dtype], "num_qo_heads": heads, "num_kv_heads": keys.shape[1]}
    members |= {"head_dim": width, "page_size": 1, "batch": rows, "q_lens": [1] * rows, "kv_lens": lens, "sm_scale": sm_scale}
    # A pool holds a page, if only one that nobody reads
    pool = [torch.cat([t, t.new_zeros(1, *t.shape[1:])])[:, None] for t in (keys, values)]
    tensors = {"q": q, "k_cache": pool[0], "v_cache": pool[1]}
    if base2:
        members |= {"form": "flashinfer", "kind": "decode", "lse_base": 2, "empty_rows": "exact"}
        tensors |= {"kv_indptr": starts, "kv_indices": numpy.arange(starts[-1], dtype=numpy.int32), "out": out}
        tensors["kv_last_page_len"] = numpy.array([int(n > 0) for n in lens], numpy.int32)
        if lse is not None:
            tensors["lse"] = lse
    else:
        members |= {"form": "fa2", "empty_rows": "exact", "causal": False}
        table = numpy.zeros((rows, max([1, *lens])), numpy.int32)
        for row, (start, n) in enumerate(zip(starts, lens)):
            table[row, :n] = numpy.arange(start, start + n)
        tensors |= {"page_table": table, "cache_seqlens": numpy.array(lens, numpy.int32), "out_gpu": out}
        tensors["cu_seqlens_q"] = numpy.arange(rows + 1, dtype=numpy.int32)
        if lse is not None:
            tensors["lse_gpu"] = torch.as_tensor(lse).t()
    for name, value in more.items():
        (tensors if hasattr(value, "shape") else members)[name] = value
    return _judge(members, tensors)


def merge_findings(v, s, out, lse, **more):
    """v [n, states, H, D], s and lse to base 2."""
    v = torch.as_tensor(v)
    n, states, heads, dim = v.shape
    members = {"form": "flashinfer", "kind": "merge", "num_qo_heads": heads, "num_kv_heads": heads, "head_dim": dim, "sm_scale": 1.0}
    members |= {"batch": 1, "lse_base": 2, "num_states": states, "empty_rows": "exact", "arithmetic": "flashinfer_merge", **more}
    return _judge(members, {"v": v, "s": torch.as_tensor(s), "out": torch.as_tensor(out), "lse": torch.as_tensor(lse)})


def seen(q_len, kv_len, causal=False, window_left=-1, window_right=-1, chunk=0):
    """bool [q_len, kv_len]: query i stands at the key kv_len - q_len + i."""
    at, key = numpy.arange(q_len)[:, None] + kv_len - q_len, numpy.arange(kv_len)[None]
    mask = numpy.ones((q_len, kv_len), bool)
    if causal:
        mask &= key <= at
    if window_left >= 0:
        mask &= key >= at - window_left
    if window_right >= 0:
        mask &= key <= at + window_right
    if chunk:
        mask &= key // chunk == at // chunk
    return mask


def rows_of(per_request, masks):
    """The entries of a request's [kv_len, ...] that its mask [q_len, kv_len] shows to each row of q."""
    return [torch.as_tensor(entries)[torch.from_numpy(row)] for entries, mask in zip(per_request, masks) for row in mask]
