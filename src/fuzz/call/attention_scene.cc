#include "fuzz/call/attention_scene.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attn/tensor_rows.h"
#include "check/bounds/recurrent_compare.h"
#include "core/float_formats.h"

namespace shadowgraph {
namespace {

/// A row's bytes; one NaN is as good as another, whose bits depend on the order of operands.
std::vector<std::byte> bits_of(const ConstTensorView& row, bool sees_nan) {
  std::vector<std::byte> bytes = gather(row);
  for (int64_t i = 0; sees_nan && i < row.numel(); ++i)
    if (std::isnan(load_float(bytes.data(), row.dtype, i)))
      store_float(bytes.data(), row.dtype, i, std::numeric_limits<float>::quiet_NaN());
  return bytes;
}

}  // namespace

AttentionArrangement AttentionArrangement::of(const Case& c) {
  const auto& x = std::get<AttentionCase>(c.call);
  AttentionArrangement a;
  a.ragged = x.kernel == CaseKernel::kPrefillRagged;
  a.decode = x.kernel == CaseKernel::kDecodePaged;
  a.page_size = x.page_size;
  a.layout = x.layout;
  a.table = x.table;
  a.through_store_kv = x.through_store_kv;
  arrange_as(c, &a);
  a.calls.emplace_back();
  for (size_t i = 0; i < x.requests.size(); ++i)
    a.calls[0].push_back({static_cast<int64_t>(i), 0, x.requests[i].q_len});
  a.options.lse_sink = x.lse_sink;
  a.padded = x.terms.padded_rows;
  return a;
}

std::string AttentionArrangement::to_string() const {
  std::string s = ragged ? "ragged, " : "page " + std::to_string(page_size) + ", ";
  if (!ragged && layout == KvLayout::kPanels) s += "in panels, ";
  s += describe_rows();
  if (poison_unread) s += ", poison in all that the footprint does not read";
  if (!with_lse) s += ", no lse";
  if (planned) s += ", planned";
  if (workspace) s += ", scratch of its size";
  if (in_records) s += ", in records";
  if (padded) s += ", rows of nobody between";
  if (through_copy_kv) s += ", copy_kv";
  return s + (through_store_kv ? ", store_kv" : "");
}

AttentionScene::AttentionScene(const Case& x, const AttentionData& data,
                               const AttentionArrangement& how)
    : x_(std::get<AttentionCase>(x.call)), data_(data), how_(how), rng_(how.seed) {
  first_row_ = {0};
  for (const RequestExtent& r : x_.requests) first_row_.push_back(first_row_.back() + r.q_len);
}

/// Under a causal mask the keys of a chunk end where its last row's do; without one no request is
/// cut.
int32_t AttentionScene::kv_len(size_t i) const {
  if (is_idle(i)) return 0;
  const RequestExtent& r = x_.requests[static_cast<size_t>(pieces_[i].row)];
  return pieces_[i].end == r.q_len ? r.kv_len : std::max(0, r.kv_len - (r.q_len - pieces_[i].end));
}

void AttentionScene::lay_lengths() {
  cu_seqlens_q_ = cu_seqlens_k_ = {0};
  q_lens_.clear(), kv_lens_.clear();
  const auto padding = [this] { return how_.padded ? static_cast<int32_t>(rng_.below(3)) : 0; };
  for (size_t i = 0; i < count(); ++i) {
    q_lens_.push_back(pieces_[i].end - pieces_[i].begin);
    kv_lens_.push_back(kv_len(i));
    cu_seqlens_q_.push_back(cu_seqlens_q_.back() + q_lens_.back() + padding());
    cu_seqlens_k_.push_back(cu_seqlens_k_.back() + kv_lens_.back() + padding());
  }
}

TensorView AttentionScene::add_rows(const char* field, DType type, std::vector<int64_t>&& shape) {
  shape[0] += how_.rows_behind;
  TensorView t = memory_.add(field, type, shape, rng_);
  t.shape[0] -= how_.rows_behind;
  return t;
}

TensorView AttentionScene::add_output(const char* field, DType type, std::vector<int64_t>&& shape,
                                      AxisOrder order) {
  shape[0] += how_.rows_behind;
  TensorView t = memory_.add_output(field, type, shape, rng_, order);
  t.shape[0] -= how_.rows_behind;
  return t;
}

/// What both kinds of call have. Rows of nobody are poison.
template <class One>
void AttentionScene::lay_rows(One* call) {
  const int64_t rows = cu_seqlens_q_.back(), heads = x_.num_qo_heads;
  std::vector<TensorView> together;
  if (how_.in_records) {
    std::vector<RecordField> fields = {{x_.q_dtype, {rows, heads, x_.head_dim_qk}},
                                       {x_.out_dtype, {rows, heads, x_.head_dim_vo}}};
    if (how_.with_lse) fields.push_back({DType::kF32, {rows, heads}});
    together = memory_.add_records("q, out and lse", 1 + rng_.below(2), fields, rng_);
  }
  const TensorView q =
      how_.in_records ? together[0] : add_rows("q", x_.q_dtype, {rows, heads, x_.head_dim_qk});
  for (size_t i = 0; i < count(); ++i) {
    for (int32_t t = pieces_[i].begin; t < pieces_[i].end && !is_idle(i); ++t) {
      const LogicalTensor& from = request(i).q;
      scatter({from.row(t, 0), static_cast<size_t>(from.heads * from.row_bytes())},
              at_place(q, cu_seqlens_q_[i] + t - pieces_[i].begin));
    }
  }
  call->q = q;
  call->params = {.num_qo_heads = x_.num_qo_heads,
                  .num_kv_heads = x_.num_kv_heads,
                  .head_dim_qk = x_.head_dim_qk,
                  .head_dim_vo = x_.head_dim_vo,
                  .sm_scale = x_.sm_scale,
                  .causal = x_.causal,
                  .window_left = x_.window_left,
                  .window_right = x_.window_right,
                  .logits_soft_cap = x_.logits_soft_cap,
                  .sinks = add_list("sinks", data_.sinks),
                  .custom_mask = lay_mask(),
                  .terms = lay_terms()};
  call->options = how_.options;
  call->out = how_.in_records ? together[1]
                              : add_output("out", x_.out_dtype, {rows, heads, x_.head_dim_vo},
                                           AxisOrder::kAsNamed);
  const auto add_written = [this](const ConstTensorView& t) {
    for (size_t i = 0; i < count(); ++i)
      if (q_lens_[i] > 0) written_.push_back(rows_of(t, cu_seqlens_q_[i], q_lens_[i]));
  };
  written_.clear();
  add_written(call->out);
  if (!how_.with_lse) return;
  call->lse =
      NaturalLse(how_.in_records ? together[2]
                                 : add_output("lse", DType::kF32, {rows, heads}, AxisOrder::kAny));
  add_written(call->lse.tensor);
}

/// The pieces' parts of what requests have for themselves.
AttentionTerms AttentionScene::lay_terms() {
  const CaseTerms& t = x_.terms;
  AttentionTerms terms;
  if (how_.padded) {
    terms.seqused_q = add_list("seqused_q", q_lens_);
    if (how_.ragged) terms.seqused_k = add_list("seqused_k", kv_lens_);
  }
  if (!t.any()) return terms;
  std::vector<uint8_t> causal;
  std::vector<int32_t> leftpad, ranges, range_indptr = {0};
  std::vector<float> k_scales, v_scales, bias;
  const auto heads = static_cast<size_t>(x_.num_qo_heads),
             kv_heads = static_cast<size_t>(x_.num_kv_heads);
  for (size_t i = 0; i < count(); ++i) {
    const RequestData of_nobody;
    const RequestData& r = is_idle(i) ? of_nobody : request(i);
    causal.push_back(r.causal), leftpad.push_back(std::min(r.cache_leftpad, kv_lens_[i]));
    ranges.insert(ranges.end(), r.bidirectional.begin(), r.bidirectional.end());
    range_indptr.push_back(static_cast<int32_t>(ranges.size() / 2));
    if (is_idle(i))
      k_scales.resize(k_scales.size() + kv_heads, 1), v_scales.resize(k_scales.size(), 1);
    k_scales.insert(k_scales.end(), r.k_scales.begin(), r.k_scales.end());
    v_scales.insert(v_scales.end(), r.v_scales.begin(), r.v_scales.end());
  }
  for (size_t h = 0; t.key_bias && h < heads; ++h) {
    for (size_t i = 0; i < count(); ++i) {
      if (is_idle(i)) continue;
      const std::vector<float>& all = request(i).key_bias;
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(h * all.size() / heads);
      bias.insert(bias.end(), first, first + kv_lens_[i]);
    }
  }
  if (t.head_scales) k_scales = data_.requests[0].k_scales, v_scales = data_.requests[0].v_scales;
  terms.alibi = t.alibi.value_or(terms.alibi);
  terms.alibi_slopes = add_list("alibi_slopes", data_.alibi_slopes);
  terms.qq_bias = add_list("qq_bias", data_.qq_bias);
  terms.relative_bias = add_list("relative_bias", data_.relative_bias);
  if (t.key_bias) terms.key_bias = add_list("key_bias", bias);
  terms.temperature_len = t.temperature_len;
  terms.attention_chunk = t.attention_chunk, terms.chunk_lookback = t.chunk_lookback;
  if (t.request_causal) terms.request_causal = add_list("request_causal", causal);
  if (t.cache_leftpad) terms.cache_leftpad = add_list("cache_leftpad", leftpad);
  if (t.bidirectional) {
    terms.bidirectional_ranges = add_list("bidirectional_ranges", ranges);
    terms.bidirectional_indptr = add_list("bidirectional_indptr", range_indptr);
  }
  if (t.head_scales || t.request_head_scales) {
    terms.k_scales = add_list("k_scales", k_scales);
    terms.v_scales = add_list("v_scales", v_scales);
  }
  terms.q_scale = t.q_scale, terms.out_scale = t.out_scale;
  return terms;
}

/// The pieces' parts of the requests' masks, packed if the Case says so.
CustomMask AttentionScene::lay_mask() {
  if (x_.mask == CustomMask::Kind::kNone) return {};
  const bool packed = x_.mask == CustomMask::Kind::kPacked;
  const int32_t heads = x_.terms.mask_of_heads ? x_.num_qo_heads : 1;
  std::vector<int64_t> indptr = {0};
  std::vector<uint8_t> mask;
  for (size_t i = 0; i < count(); ++i) {
    int64_t pair = 0;
    const int64_t keys = kv_len(i);
    const auto add_row = [&](int64_t row, int64_t all_keys) {
      for (int64_t key = 0; key < keys; ++key, ++pair) {
        const uint8_t seen = request(i).mask[static_cast<size_t>(row * all_keys + key)];
        if (!packed) mask.push_back(seen ? 1 : 0);
        if (packed && pair % 8 == 0) mask.push_back(0);
        if (packed && seen) mask.back() = static_cast<uint8_t>(mask.back() | 1u << (pair % 8));
      }
    };
    for (int32_t head = 0; keys > 0 && head < heads; ++head) {
      const RequestExtent& r = x_.requests[static_cast<size_t>(pieces_[i].row)];
      for (int64_t t = pieces_[i].begin; t < pieces_[i].end; ++t)
        add_row(head * r.q_len + t, r.kv_len);
    }
    indptr.push_back(static_cast<int64_t>(mask.size()));
  }
  return {x_.mask, add_list("custom_mask", mask), add_list("mask_indptr", indptr), heads};
}

void AttentionScene::lay_call(RaggedAttention* call) {
  const int64_t tokens = cu_seqlens_k_.back();
  const std::vector<int64_t> of_keys = {tokens, x_.num_kv_heads, x_.head_dim_qk},
                             of_values = {tokens, x_.num_kv_heads, x_.head_dim_vo};
  std::vector<TensorView> kv;
  if (how_.in_records)
    kv = memory_.add_records("k and v", 1 + rng_.below(2),
                             {{x_.kv_dtype, of_keys}, {x_.kv_dtype, of_values}}, rng_);
  const TensorView keys =
      kv.empty() ? add_rows("k", x_.kv_dtype, {tokens, x_.num_kv_heads, x_.head_dim_qk}) : kv[0];
  const TensorView values =
      kv.empty() ? add_rows("v", x_.kv_dtype, {tokens, x_.num_kv_heads, x_.head_dim_vo}) : kv[1];
  for_each_key(&RequestData::visible, [&](size_t i, int32_t t) {
    for (const bool key : {true, false}) {
      const LogicalTensor& from = key ? request(i).k : request(i).v;
      scatter({from.row(t, 0), static_cast<size_t>(from.heads * from.row_bytes())},
              at_place(key ? keys : values, cu_seqlens_k_[i] + t));
    }
  });
  call->k = keys, call->v = values;
  call->k_scale = x_.k_scale, call->v_scale = x_.v_scale;
  call->cu_seqlens_q = add_list("cu_seqlens_q", cu_seqlens_q_);
  call->cu_seqlens_k = add_list("cu_seqlens_k", cu_seqlens_k_);
}

/// In memory of exactly the size that it is said to need. Where it is refused so is the call.
void AttentionScene::lay_plan(PagedAttention* call) {
  const std::vector<int32_t> room(static_cast<size_t>(attention_plan_size(*call)), -1);
  const std::span<int32_t> plan = memory_.add_list("plan", room, rng_);
  if (plan_attention(*call, plan).ok()) call->plan = plan;
}

void AttentionScene::lay(size_t index) {
  memory_ = CallMemory(how_.memory);
  workspace_ = GuardedBuffer();
  stored_ = Status();
  pieces_ = how_.calls[index];
  const auto idle = [&] {
    return RowPiece{RowPiece::kNobody, 0, how_.decode ? 1 : static_cast<int32_t>(rng_.below(3))};
  };
  add_idle_rows(how_.idle_rows, idle, rng_, &pieces_);
  lay_lengths();
  const auto lay_one = [&](auto call) {
    lay_call(&call);
    lay_rows(&call);
    if constexpr (requires { call.plan; }) {
      if (how_.planned) lay_plan(&call);
    }
    if (how_.workspace) {
      const uint32_t off = rng_.below(65);
      workspace_ = GuardedBuffer(attention_scratch_size(call), off % 2 == 0 ? 0 : off, kPoison,
                                 off < 32 ? Side::kFront : Side::kBack);
      call.options.scratch = {workspace_.data(), static_cast<size_t>(workspace_.size())};
    }
    call_ = call;
  };
  how_.ragged ? lay_one(RaggedAttention()) : lay_one(PagedAttention());
  guard_lists(rng_);
  if (how_.poison_unread) memory_.poison_unread(footprint_of(call_));
  memory_.remember();
}

Status AttentionScene::execute_laid() const {
  if (!stored_.ok()) return stored_;
  if (how_.device == nullptr) return execute(call_);
  // No GPU body has terms.
  return std::visit(
      [&](const auto& call) {
        return call.params.terms.any() ? execute(call_) : how_.device->run(call);
      },
      call_);
}

void AttentionScene::collect(RowResults* results) const {
  const auto take = [&](const TensorView& out, const TensorView& lse) {
    for (size_t i = 0; i < count(); ++i) {
      for (int64_t t = pieces_[i].begin; t < pieces_[i].end && !is_idle(i); ++t) {
        const int64_t from = cu_seqlens_q_[i] + t - pieces_[i].begin;
        const auto to = static_cast<size_t>(first_row_[static_cast<size_t>(pieces_[i].row)] + t);
        results->out[to] = bits_of(at_place(ConstTensorView(out), from), x_.nan);
        if (lse.defined())
          results->beside[to] = bits_of(at_place(ConstTensorView(lse), from), x_.nan);
      }
    }
  };
  std::visit([&](const auto& call) { take(call.out, call.lse.tensor); }, call_);
}

}  // namespace shadowgraph
