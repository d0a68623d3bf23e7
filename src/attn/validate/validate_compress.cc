#include "attn/validate/validate_compress.h"

#include <cmath>
#include <string>
#include <vector>

#include "attn/validate/batch_check.h"
#include "attn/validate/cache_check.h"
#include "attn/validate/tensor_check.h"

namespace shadowgraph {
namespace {

bool check_shape(TensorCheck& c, const CompressShape& shape) {
  if (shape.ratio >= 2 && shape.ratio <= 128) return true;
  c.fail("input.shape", at("shape.ratio"), "2 to 128", std::to_string(shape.ratio));
  return false;
}

/// Channels of a row that are one head's; kAny, and a finding, where they do not divide.
int64_t check_channels(TensorCheck& c, const CompressShape& shape, int64_t channels) {
  if (channels % shape.channels() == 0 && channels > 0) return channels / shape.channels();
  c.fail("input.shape", at("kv_score.shape"),
         "a positive multiple of " + std::to_string(shape.channels()) + " channels",
         std::to_string(channels));
  return kAny;
}

/// Whose pages are whose: -1 nobody's.
class PageOwners {
 public:
  PageOwners(TensorCheck& c, int64_t pages) : c_(c), owner_(static_cast<size_t>(pages), -1) {}

  void write(const char* field, int64_t row, int64_t token, int32_t page) {
    if (!in_pool(field, token, page)) return;
    int64_t& owner = owner_[static_cast<size_t>(page)];
    if (owner >= 0 && owner != row) fail(field, token, page, owner);
    if (owner < 0) owner = row;
  }
  /// After all writes are known.
  void read(const char* field, int64_t row, int64_t token, int32_t page) {
    if (!in_pool(field, token, page)) return;
    const int64_t owner = owner_[static_cast<size_t>(page)];
    if (owner >= 0 && owner != row) fail(field, token, page, owner);
  }

 private:
  bool in_pool(const char* field, int64_t token, int32_t page) {
    if (page >= 0 && page < std::ssize(owner_)) return true;
    c_.fail("slot.range", at(field, token), "0 <= page < " + std::to_string(owner_.size()),
            std::to_string(page));
    return false;
  }
  void fail(const char* field, int64_t token, int32_t page, int64_t owner) {
    c_.fail("slot.duplicate", at(field, token), "a page of its own request's",
            std::to_string(page) + ", written by request " + std::to_string(owner));
  }

  TensorCheck& c_;
  std::vector<int64_t> owner_;
};

void check_pages(TensorCheck& c, const Compress& call) {
  PageOwners owners(c, call.state.shape[0]);
  const auto each = [&](const auto& fn) {
    for (int64_t row = 0; row < call.rows(); ++row)
      for (int32_t t = call.cu_seqlens_q[static_cast<size_t>(row)];
           t < call.cu_seqlens_q[static_cast<size_t>(row) + 1]; ++t)
        if (!call.drops(t)) fn(row, static_cast<int64_t>(t));
  };
  each([&](int64_t row, int64_t t) {
    owners.write("indices", row, t, call.indices[static_cast<size_t>(t)]);
  });
  each([&](int64_t row, int64_t t) {
    if (call.seq_len(t) > 0 && call.reads_extra(t))
      owners.read("extra", row, t, call.extra[static_cast<size_t>(t)]);
  });
}

bool check_lists(TensorCheck& c, const Compress& call, int64_t tokens) {
  bool ok = c.span("cu_seqlens_q", call.cu_seqlens_q);
  if (ok)
    ok = check_indptr(c, "cu_seqlens_q", call.cu_seqlens_q, std::max<int64_t>(0, call.rows()),
                      tokens);
  const struct {
    const char* field;
    std::span<const int32_t> list;
  } lists[] = {{"seq_lens", call.seq_lens}, {"indices", call.indices}, {"extra", call.extra}};
  for (const auto& l : lists) {
    ok &= c.span(l.field, l.list);
    if (std::ssize(l.list) == tokens) continue;
    c.fail("len.batch", at(l.field), std::to_string(tokens), std::to_string(l.list.size()));
    ok = false;
  }
  for (int64_t t = 0; ok && t < tokens; ++t)
    if (!call.drops(t) && call.seq_len(t) < 1)
      c.fail("len.negative", at("seq_lens", t), ">= 1", std::to_string(call.seq_len(t)));
  return ok;
}

void check_norm(TensorCheck& c, int64_t blocks, int64_t dim, const ConstTensorView& weight,
                float eps, const ConstTensorView& freqs, const TensorView& out) {
  c.input("weight", weight, {dim}, kF32);
  if (!(eps > 0 && std::isfinite(eps))) c.fail("param.scale", at("eps"), "finite, > 0", text(eps));
  if (c.input("freqs", freqs, {blocks, kAny}, kF32) &&
      (freqs.shape[1] % 2 != 0 || (dim != kAny && freqs.shape[1] > dim)))
    c.fail("input.shape", at("freqs.shape", 1), "even, and no more than head_dim",
           std::to_string(freqs.shape[1]));
  c.output("out", out, {blocks, dim}, kWide);
}

}  // namespace

Status validate(const Compress& call) {
  Status status;
  TensorCheck c(&status);
  if (!check_shape(c, call.shape)) return status;
  int64_t tokens = kAny, dim = kAny, channels = kAny;
  if (c.input("kv_score", call.kv_score, {kAny, kAny}, kWide)) {
    tokens = call.kv_score.shape[0], channels = call.kv_score.shape[1];
    dim = check_channels(c, call.shape, channels);
  }
  c.input("ape", call.ape, {call.shape.window(), dim}, kF32);
  const bool state_ok = c.output("state", call.state, {kAny, call.shape.ratio, channels}, kF32);
  c.output("out", call.out, {tokens, dim}, kWide);
  if (tokens != kAny && check_lists(c, call, tokens) && state_ok) check_pages(c, call);
  c.no_aliases();
  return status;
}

Status validate(const PoolNormRope& call) {
  Status status;
  TensorCheck c(&status);
  if (!check_shape(c, call.shape)) return status;
  int64_t blocks = kAny, dim = kAny;
  if (c.input("kv_score", call.kv_score, {kAny, call.shape.window(), kAny}, kWide)) {
    blocks = call.kv_score.shape[0];
    dim = check_channels(c, call.shape, call.kv_score.shape[2]);
  }
  const int64_t ape_channels = dim == kAny ? kAny : call.shape.halves() * dim;
  c.input("ape", call.ape, {call.shape.ratio, ape_channels}, kF32);
  check_norm(c, blocks, dim, call.weight, call.eps, call.freqs, call.out);
  c.no_aliases();
  return status;
}

Status validate(const NormRope& call) {
  Status status;
  TensorCheck c(&status);
  int64_t blocks = kAny, dim = kAny;
  if (c.input("x", call.x, {kAny, kAny}, kWide)) blocks = call.x.shape[0], dim = call.x.shape[1];
  check_norm(c, blocks, dim, call.weight, call.eps, call.freqs, call.out);
  c.no_aliases();
  return status;
}

}  // namespace shadowgraph
