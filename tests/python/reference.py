"""Attention in float64, request by request, and how far a right f32 result may be from it.

The bound follows the sums. A logit is a sum of dim products: it is off by at most (dim + 4) eps * scale * sum |q k|, and
by 4 eps of its own size (scale, cap, bias). exp turns that into a relative error of a weight; a sum over n weights adds
n eps, exp itself and the division 8 eps. Hence out is off by (2 * logit + (n + 8) eps) * sum of weight * |v|, and lse by
logit + (n + 8) eps + 4 eps * |lse|. A smaller type of the result adds its rounding.
"""

import dataclasses

import numpy

EPS = 2.0**-24
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-24}


@dataclasses.dataclass
class Result:
    out: numpy.ndarray  # [queries, heads, dim]
    lse: numpy.ndarray  # [queries, heads]
    out_error: numpy.ndarray
    lse_error: numpy.ndarray


def f64(tensor):
    return numpy.asarray(tensor.float() if hasattr(tensor, "float") else tensor, numpy.float64)


def seen(queries, keys, causal=False, window=(-1, -1), chunk=0, leftpad=0):
    """[queries, keys]: is the key seen? The last query stands at the last key."""
    row, key = numpy.arange(queries)[:, None] + keys - queries, numpy.arange(keys)[None]
    left, right = window[0], 0 if causal else window[1]
    see = (key >= leftpad) & (row == row)
    see &= (left < 0) | (key >= row - left)
    see &= (right < 0) | (key <= row + right)
    return see & ((key - leftpad) // chunk == (row - leftpad) // chunk) if chunk else see


def attention(q, k, v, see, scale, cap=0.0, bias=None, sinks=None, lse_sinks=False, qv=None, more=0):
    """q [queries, heads, dim], k and v [keys, kv heads, dim], see [queries, keys] or [heads, queries, keys], bias
    [heads, queries, keys], qv: scores from values, too; more: eps by which each product q k is off before it is summed."""
    q, k, v = f64(q), f64(k), f64(v)
    if qv is not None:
        q, k = numpy.concatenate([q, f64(qv)], -1), numpy.concatenate([k, v], -1)
    group = q.shape[1] // k.shape[1]
    k, v = (numpy.repeat(t, group, 1) for t in (k, v))
    s = scale * numpy.einsum("qhd,khd->hqk", q, k)
    error = (q.shape[-1] + 4 + more) * EPS * scale * numpy.einsum("qhd,khd->hqk", abs(q), abs(k))
    s = cap * numpy.tanh(s / cap) if cap else s
    s = s if bias is None else s + bias
    error = numpy.where(see, error + 4 * EPS * (abs(s) + (0 if bias is None else abs(bias))), 0).max(-1, initial=0)
    s = numpy.where(see, s, -numpy.inf)
    extra = numpy.full((len(s), 1, 1), -numpy.inf) if sinks is None else f64(sinks).reshape(-1, 1, 1)
    top = numpy.maximum(s.max(-1, initial=-numpy.inf, keepdims=True), extra)
    weight = numpy.exp(s - numpy.where(numpy.isfinite(top), top, 0))
    mass = weight.sum(-1)
    whole = mass + numpy.where(numpy.isfinite(extra), numpy.exp(extra - numpy.where(numpy.isfinite(top), top, 0)), 0)[..., 0]
    p = weight / numpy.where(whole > 0, whole, 1)[..., None]
    with numpy.errstate(divide="ignore"):
        lse = numpy.log(whole if lse_sinks else mass) + numpy.where(numpy.isfinite(top), top, 0)[..., 0]
    sums = (s.shape[-1] + 8) * EPS
    out_error = (2 * error + sums)[..., None] * numpy.einsum("hqk,khd->hqd", p, abs(v))
    lse_error = error + sums + 4 * EPS * abs(numpy.where(numpy.isfinite(lse), lse, 0))
    turn = lambda t: numpy.swapaxes(t, 0, 1)  # noqa: E731
    return Result(turn(numpy.einsum("hqk,khd->hqd", p, v)), turn(lse), turn(out_error), turn(lse_error))


def far(got, want, error):
    """The largest error in bounds: above 1 is wrong."""
    dtype = str(got.dtype).rpartition(".")[2]
    got = f64(got)
    assert got.shape == want.shape, (got.shape, want.shape)
    finite = numpy.isfinite(want)
    if not numpy.array_equal(got[~finite], want[~finite]):
        return numpy.inf
    allowed = error[finite] + ROUNDING[dtype] * abs(want[finite])
    return (abs(got[finite] - want[finite]) / numpy.where(allowed > 0, allowed, 2.0**-149)).max(initial=0)


def same(got_out, got_lse, want, no_keys=-numpy.inf):
    """Asserts that a call's result is the reference's. no_keys: the lse of a row without keys."""
    assert far(got_out, want.out, want.out_error) <= 1
    if got_lse is not None:
        lse = numpy.where(numpy.isneginf(want.lse), no_keys, want.lse)
        assert far(got_lse, lse, want.lse_error) <= 1
