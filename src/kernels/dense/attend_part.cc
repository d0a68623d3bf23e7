#include "kernels/dense/attend_part.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "attn/mask.h"
#include "attn/tensor_rows.h"
#include "attn/validate/tensor_check.h"
#include "attn/validate/validate.h"
#include "kernels/footprint.h"

namespace shadowgraph {
namespace {

constexpr int32_t kAllHeads = -1;

int32_t group_of(const AttentionPart& p) { return p.params.num_qo_heads / p.params.num_kv_heads; }

/// One head of every group of heads.
template <class Byte>
BasicTensorView<Byte> one_of_group(BasicTensorView<Byte> t, int32_t head, int32_t group) {
  if (head == kAllHeads || !t.defined()) return t;
  if (t.data != nullptr) t.data = t.at(0, head);
  t.shape[1] /= group;
  t.stride[1] *= group;
  return t;
}

/// A part as a call of two requests: of the queries that may see a key, and of those that see none
/// because the window has left all of them behind.
class PartCall {
 public:
  /// head: the one of each group that is computed, or kAllHeads.
  PartCall(const AttentionPart& part, int32_t head) : part_(part), head_(head) {
    const auto tokens = static_cast<int32_t>(part.q.shape[0]);
    const auto keys = static_cast<int32_t>(part.keys.size());
    const MaskShape m =
        aligned(MaskShape::of(part.params, tokens, keys), part.q_position - part.key_position);
    cu_q_[1] = m.q_len, cu_q_[2] = tokens;
    cu_k_[1] = cu_k_[2] = m.kv_len;
    params_ = part.params;
    params_.causal = m.causal;
    params_.window_left = m.window_left;
    params_.window_right = m.window_right;
    copy_mask(m);
    if (head != kAllHeads) take_head();
  }
  PartCall(const PartCall&) = delete;
  PartCall& operator=(const PartCall&) = delete;

  /// fn(the call): a PagedAttention or a RaggedAttention.
  template <class Fn>
  auto visit(const Fn& fn) const {
    const PartKeys& keys = part_.keys;
    if (keys.ragged()) {
      RaggedAttention c;
      set_rows(c);
      c.k = rows_of(keys.k, 0, cu_k_[2]);
      c.v = rows_of(keys.v, 0, cu_k_[2]);
      c.k_scale = keys.k_scale, c.v_scale = keys.v_scale;
      c.cu_seqlens_k = cu_k_;
      return fn(c);
    }
    PagedAttention c;
    set_rows(c);
    c.cache = slot_view(keys.cache);
    c.pages = PageTable::csr(cu_k_, keys.slots.first(static_cast<size_t>(cu_k_[2])), kWholePages);
    return fn(c);
  }
  /// Memory of the host, that no launch has.
  bool owns(const void* buffer) const {
    return buffer == cu_q_ || buffer == cu_k_ || buffer == kWholePages || buffer == mask_indptr_ ||
           buffer == mask_.data() || buffer == sinks_.data();
  }

 private:
  static constexpr int32_t kWholePages[2] = {1, 1};

  template <class Call>
  void set_rows(Call& c) const {
    const int32_t group = head_ == kAllHeads ? 1 : group_of(part_);
    c.q = one_of_group(part_.q, head_, group);
    c.out = one_of_group(part_.out, head_, group);
    c.lse = NaturalLse(one_of_group(part_.lse.tensor, head_, group));
    c.cu_seqlens_q = cu_q_;
    c.params = params_;
    c.options = part_.options;
  }
  void copy_mask(const MaskShape& m) {
    if (part_.mask.empty() || m.kv_len == 0) return;
    for (int64_t q = 0; q < m.q_len; ++q) {
      const uint8_t* row = part_.mask.data() + q * part_.mask_stride;
      mask_.insert(mask_.end(), row, row + m.kv_len);
    }
    mask_indptr_[1] = mask_indptr_[2] = static_cast<int64_t>(mask_.size());
    params_.custom_mask = {CustomMask::Kind::kBool, mask_, mask_indptr_};
  }
  void take_head() {
    const int32_t group = group_of(part_);
    params_.num_qo_heads = params_.num_kv_heads;
    if (params_.sinks.empty()) return;
    for (auto h = static_cast<size_t>(head_); h < part_.params.sinks.size();
         h += static_cast<size_t>(group))
      sinks_.push_back(part_.params.sinks[h]);
    params_.sinks = sinks_;
  }

  const AttentionPart& part_;
  const int32_t head_;
  AttentionParams params_;
  int32_t cu_q_[3] = {}, cu_k_[3] = {};
  std::vector<uint8_t> mask_;
  int64_t mask_indptr_[3] = {};
  std::vector<float> sinks_;
};

/// Which heads of each group calls are made of, one a call; kAllHeads alone where one call has them
/// all.
struct HeadRange {
  int32_t begin, end;
};
HeadRange calls_of(const AttentionPart& p) {
  if (p.head_end == 0) return {kAllHeads, kAllHeads + 1};
  return {p.head_begin, p.head_end};
}

Status run(const PagedAttention& call) { return attention_with_kvcache(call); }
Status run(const RaggedAttention& call) { return attention_varlen(call); }

void check_heads(TensorCheck& c, const AttentionPart& p) {
  const int32_t group = p.params.num_kv_heads > 0 ? group_of(p) : 0;
  if (p.head_begin >= 0 && p.head_begin <= p.head_end && p.head_end <= group) return;
  c.fail("param.heads", at("head_begin .. head_end"), "within 0 .. " + std::to_string(group),
         std::to_string(p.head_begin) + " .. " + std::to_string(p.head_end));
}

void check_mask(TensorCheck& c, const AttentionPart& p) {
  if (p.params.custom_mask.kind != CustomMask::Kind::kNone)
    c.fail("mask.size", at("custom_mask"), "none: a part has a mask of its own", "one");
  if (p.params.terms.any()) c.fail("param.terms", at("terms"), "none: a part has no terms", "some");
  const int64_t tokens = p.q.shape[0], keys = p.keys.size();
  if (p.mask.empty() || tokens == 0) return;
  const int64_t pairs = std::ssize(p.mask), stride = std::max<int64_t>(1, p.mask_stride);
  if (p.mask_stride >= keys && keys <= pairs && (pairs - keys) / stride >= tokens - 1) return;
  c.fail("mask.size", at("mask"),
         std::to_string(tokens) + " rows of " + std::to_string(keys) + " pairs",
         std::to_string(pairs) + " pairs, rows " + std::to_string(p.mask_stride) + " apart");
}

}  // namespace

Status validate(const AttentionPart& p) {
  Status status;
  TensorCheck c(&status);
  check_heads(c, p);
  for (const auto& [field, size] : {std::pair("q", p.q.shape[0]), {"keys", p.keys.size()}}) {
    if (size < 0 || size > std::numeric_limits<int32_t>::max())
      c.fail("len.overflow", at(field), "0 to 2^31 - 1 rows", std::to_string(size));
  }
  if (p.keys.ragged() && p.keys.v.shape[0] != p.keys.k.shape[0])
    c.fail("input.shape", at("v"), std::to_string(p.keys.k.shape[0]) + " rows, as k",
           std::to_string(p.keys.v.shape[0]));
  check_mask(c, p);
  c.span("mask", p.mask);
  if (!status.ok()) return status;
  // If heads are taken one by one, the shapes follow from those of all heads.
  return PartCall(p, kAllHeads).visit([](const auto& call) { return validate(call); });
}

Status attend_part(const AttentionPart& part) noexcept {
  try {
    Status status = validate(part);
    if (!status.ok()) return status;
    const HeadRange heads = calls_of(part);
    for (int32_t head = heads.begin; status.ok() && head < heads.end; ++head)
      status = PartCall(part, head).visit([](const auto& call) { return run(call); });
    return status;
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {  // more than a vector can hold
  }
  return Status::out_of_memory();
}

void add_part_footprint(const AttentionPart& part, int32_t row, Footprint* spans) {
  if (part.head_end > 0 && !part.params.sinks.empty())
    spans->push_back({part.params.sinks.data(), 0, std::ssize(part.params.sinks), sizeof(float)});
  const HeadRange heads = calls_of(part);
  for (int32_t head = heads.begin; head < heads.end; ++head) {
    const PartCall part_call(part, head);
    for (AccessSpan span :
         part_call.visit([](const auto& call) { return attention_footprint(call); })) {
      if (part_call.owns(span.buffer)) continue;
      if (span.row >= 0) span.row = row;
      spans->push_back(span);
    }
  }
}

}  // namespace shadowgraph
