#include "check/recorded/planned.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>

#include "attn/page_table.h"
#include "backends/lists/flashinfer_plan.h"
#include "core/float_formats.h"
#include "launch/tile_launch.h"
#include "shadowgraph/device/sim_device.h"

namespace shadowgraph {
namespace {

/// One plan, its memory and its run. The device is told of none of it: it lies on the host.
class PlannedRun {
 public:
  PlannedRun(const AttentionParams& params, const ConstTensorView& q, const SplitConfig& split,
             PlannedResult* result)
      : device_({.seed = 0, .choose = {}, .checked = false}), stream_(device_), result_(*result) {
    call_.params = params;
    call_.params.custom_mask = {};
    call_.q = q;
    shape_.tokens = static_cast<int32_t>(q.shape[0]);
    shape_.num_qo_heads = params.num_qo_heads;
    shape_.num_kv_heads = params.num_kv_heads;
    shape_.head_dim_qk = params.head_dim_qk;
    shape_.head_dim_vo = params.head_dim_vo;
    shape_.split = split;
  }

  /// Rows of a request after the other.
  std::vector<int32_t> kv_indptr{0}, qo_lens, kv_lens, kv_indices;
  TiledAttention& call() { return call_; }

  void set_mask(const CustomMask& mask) {
    if (mask.kind == CustomMask::Kind::kNone) return;
    mask_indptr_ = {0};
    for (size_t r = 0; r < kv_lens.size(); ++r) add_mask(mask, r);
    call_.packed_mask = packed_;
    call_.mask_indptr = mask_indptr_;
    call_.params.causal = false;
  }

  Status run(bool decode) {
    shape_.kind = decode ? PlanKind::kDecode : PlanKind::kPrefill;
    shape_.rows = static_cast<int32_t>(kv_lens.size());
    std::vector<int32_t> qo_indptr{0};
    for (const int32_t n : qo_lens) qo_indptr.push_back(qo_indptr.back() + n);
    if (!decode) call_.qo_indptr = qo_indptr;
    call_.kv_indptr = kv_indptr;
    call_.kv_indices = kv_indices;
    plan(call_.qo_indptr);
    allocate();
    if (plan_.split_kv) {
      run_split(qo_indptr);
    } else {
      call_.out = result_.out, call_.lse = result_.lse;
      stream_.launch(tile_launch(call_));
    }
    stream_.synchronize();
    return stream_.take_status();
  }

 private:
  void add_mask(const CustomMask& mask, size_t r) {
    const int64_t pairs = int64_t{qo_lens[r]} * kv_lens[r];
    const size_t first = packed_.size();
    packed_.resize(first + static_cast<size_t>((pairs + 7) / 8));
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const bool packed = mask.kind == CustomMask::Kind::kPacked;
      const auto at = static_cast<size_t>(mask.mask_indptr[r] + (packed ? pair / 8 : pair));
      const bool bit = packed ? mask.data[at] >> (pair % 8) & 1 : mask.data[at] != 0;
      packed_[first + static_cast<size_t>(pair / 8)] |= static_cast<uint8_t>(bit << (pair % 8));
    }
    mask_indptr_.push_back(static_cast<int32_t>(packed_.size()));
  }

  void plan(std::span<const int32_t> qo_indptr) {
    const bool prefill = shape_.kind == PlanKind::kPrefill;
    const auto items = static_cast<size_t>(
        plan_capacity(shape_, kv_lens.empty() ? 0 : std::ranges::max(kv_lens)).items);
    plan_ = measure_plan(shape_, qo_indptr, kv_indptr);
    requests_.resize(items), kv_tiles_.resize(items), valid_.resize(items);
    q_tiles_.resize(prefill ? items : 0);
    o_indptr_.resize(kv_lens.size() + 1);
    merge_indptr_.resize(prefill ? static_cast<size_t>(shape_.tokens) + 1 : 0);
    chunk_.resize(1);
    // There is room for what was measured.
    [[maybe_unused]] const Status status = write_plan(shape_, qo_indptr, kv_indptr, plan_,
                                                      {.request_indices = requests_,
                                                       .kv_tile_indices = kv_tiles_,
                                                       .qo_tile_indices = q_tiles_,
                                                       .o_indptr = o_indptr_,
                                                       .merge_indptr = merge_indptr_,
                                                       .kv_chunk_size = chunk_,
                                                       .block_valid_mask = valid_});
    call_.plan = {.request_indices = requests_,
                  .qo_tile_indices = q_tiles_,
                  .kv_tile_indices = kv_tiles_,
                  .o_indptr = o_indptr_,
                  .merge_indptr = prefill ? merge_indptr_ : o_indptr_,
                  .kv_chunk_size = chunk_,
                  .block_valid_mask = valid_,
                  .cta_tile_q = shape_.cta_tile_q(),
                  .split_kv = plan_.split_kv};
    assert(status.ok());
  }

  void allocate() {
    const AttentionParams& p = call_.params;
    const int64_t tokens = shape_.tokens;
    result_.out_bytes.resize(static_cast<size_t>(tokens * p.num_qo_heads * p.head_dim_vo) *
                             size_of(call_.q.dtype));
    result_.lse_values.resize(static_cast<size_t>(tokens * p.num_qo_heads));
    result_.out = TensorView(result_.out_bytes.data(), call_.q.dtype,
                             {tokens, p.num_qo_heads, p.head_dim_vo});
    result_.lse =
        Log2Lse(TensorView(result_.lse_values.data(), DType::kF32, {tokens, p.num_qo_heads}));
    result_.parts.assign(static_cast<size_t>(tokens), 1);
  }

  void run_split(std::span<const int32_t> qo_indptr) {
    const AttentionParams& p = call_.params;
    const std::span<const int32_t> merge_indptr = call_.plan.merge_indptr;
    const int64_t rows = merge_indptr.back();
    std::vector<float> out(static_cast<size_t>(rows * p.num_qo_heads * p.head_dim_vo));
    std::vector<float> lse(static_cast<size_t>(rows * p.num_qo_heads));
    call_.out = TensorView(out.data(), DType::kF32, {rows, p.num_qo_heads, p.head_dim_vo});
    call_.lse = Log2Lse(TensorView(lse.data(), DType::kF32, {rows, p.num_qo_heads}));
    stream_.launch(tile_launch(call_));
    MergeTiles merge;
    merge.v = call_.out, merge.s = call_.lse;
    merge.merge_indptr = merge_indptr;
    merge.qo_indptr = qo_indptr;
    merge.out = result_.out, merge.lse = result_.lse;
    stream_.launch(merge_tiles_launch(merge));
    for (size_t t = 0; t < result_.parts.size(); ++t)
      result_.parts[t] = std::max(1, merge_indptr[t + 1] - merge_indptr[t]);
    stream_.synchronize();
  }

  SimDevice device_;
  Stream stream_;
  PlannedResult& result_;
  TiledAttention call_;
  PlanShape shape_;
  PlanResult plan_;
  std::vector<int32_t> requests_, q_tiles_, kv_tiles_, o_indptr_, merge_indptr_, chunk_;
  std::vector<int32_t> mask_indptr_;
  std::vector<uint8_t> valid_, packed_;
};

}  // namespace

Status run_planned(const PagedAttention& c, const SplitConfig& split, PlannedResult* result) {
  PlannedRun run(c.params, c.q, split, result);
  const bool decode = c.cu_seqlens_q.empty();
  const int32_t size = c.cache.page_size;
  for (int64_t r = 0; r < c.pages.batch(); ++r) {
    const RequestPages pages = request_pages(c.pages, size, r);
    const auto i = static_cast<size_t>(r);
    run.kv_lens.push_back(pages.kv_len);
    run.qo_lens.push_back(decode ? 1 : c.cu_seqlens_q[i + 1] - c.cu_seqlens_q[i]);
    for (int32_t t = 0; t < pages.kv_len; ++t) run.kv_indices.push_back(slot_of(pages, size, t));
    run.kv_indptr.push_back(static_cast<int32_t>(run.kv_indices.size()));
  }
  run.call().cache = slot_view(c.cache);
  run.set_mask(c.params.custom_mask);
  return run.run(decode);
}

Status run_planned(const RaggedAttention& c, const SplitConfig& split, PlannedResult* result) {
  PlannedRun run(c.params, c.q, split, result);
  for (size_t r = 0; r + 1 < c.cu_seqlens_q.size(); ++r) {
    run.kv_lens.push_back(c.cu_seqlens_k[r + 1] - c.cu_seqlens_k[r]);
    run.qo_lens.push_back(c.cu_seqlens_q[r + 1] - c.cu_seqlens_q[r]);
    run.kv_indptr.push_back(c.cu_seqlens_k[r + 1]);
  }
  run.call().k = c.k, run.call().v = c.v;
  run.set_mask(c.params.custom_mask);
  return run.run(false);
}

Status run_planned(const MergeStates<LseBase::kLog2>& c, const SplitConfig& /*split*/,
                   PlannedResult* result) {
  const int64_t rows = c.v.shape[0], states = c.v.shape[1], heads = c.v.shape[2],
                dim = c.v.shape[3];
  std::vector<float> values(static_cast<size_t>(c.v.numel()));
  for (int64_t i = 0; i < c.v.numel(); ++i)
    values[static_cast<size_t>(i)] = load_float(c.v.data, c.v.dtype, i);
  std::vector<int32_t> merge_indptr(static_cast<size_t>(rows) + 1);
  for (size_t i = 0; i < merge_indptr.size(); ++i)
    merge_indptr[i] = static_cast<int32_t>(static_cast<int64_t>(i) * states);
  result->out_bytes.resize(static_cast<size_t>(rows * heads * dim) * size_of(c.v.dtype));
  result->lse_values.resize(static_cast<size_t>(rows * heads));
  result->out = TensorView(result->out_bytes.data(), c.v.dtype, {rows, heads, dim});
  result->lse = Log2Lse(TensorView(result->lse_values.data(), DType::kF32, {rows, heads}));
  MergeTiles merge;
  merge.v = ConstTensorView(values.data(), DType::kF32, {rows * states, heads, dim});
  std::vector<float> lse(static_cast<size_t>(c.s.numel()));
  std::memcpy(lse.data(), c.s.data, lse.size() * sizeof(float));
  merge.s = Log2Lse(TensorView(lse.data(), DType::kF32, {rows * states, heads}));
  merge.merge_indptr = merge_indptr;
  merge.out = result->out, merge.lse = result->lse;
  SimDevice device({.seed = 0, .choose = {}, .checked = false});
  Stream stream(device);
  stream.launch(merge_tiles_launch(merge));
  stream.synchronize();
  return stream.take_status();
}

Status run_planned(const AnyCall& call, const SplitConfig& split, PlannedResult* result) {
  assert(!std::holds_alternative<SparseAttention>(call));
  return std::visit(
      [&](const auto& c) {
        if constexpr (std::is_same_v<decltype(c), const SparseAttention&>) {
          return Status();
        } else {
          return run_planned(c, split, result);
        }
      },
      call);
}

bool can_be_planned(const AnyCall& call) {
  const auto* paged = std::get_if<PagedAttention>(&call);
  if (paged != nullptr && !slot_view(paged->cache).well_formed) return false;
  const auto has_terms = [](const auto& c) {
    if constexpr (requires { c.params; })
      return c.params.terms.any() || c.params.custom_mask.heads > 1;
    return false;
  };
  return !std::visit(has_terms, call);
}

}  // namespace shadowgraph
