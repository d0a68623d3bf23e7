#include "check/mistakes/call_scene.h"

#include <cstring>

#include "attn/page_table.h"
#include "check/mistakes/diagnose.h"

namespace shadowgraph {
namespace {

TensorView writable(const ConstTensorView& t) {
  TensorView view;
  view.data = const_cast<std::byte*>(t.data);  // a cache is read through such views, too
  view.dtype = t.dtype, view.rank = t.rank, view.shape = t.shape, view.stride = t.stride;
  return view;
}

/// [q_len * kv_len] of a request.
std::vector<uint8_t> pairs_of(const CustomMask& mask, size_t request, int64_t pairs) {
  std::vector<uint8_t> bits;
  const uint8_t* data = mask.data.data() + mask.mask_indptr[request];
  for (int64_t i = 0; i < pairs; ++i) {
    const bool packed = mask.kind == CustomMask::Kind::kPacked;
    bits.push_back(packed ? data[i / 8] >> (i % 8) & 1 : data[i] != 0);
  }
  return bits;
}

}  // namespace

CallScene::CallScene(const PagedAttention& call) {
  scene_.q = call.q;
  RowsRead& rows = scene_.rows;
  rows.cu_seqlens_q = {0};
  for (int64_t r = 0; r < call.pages.batch(); ++r) {
    const bool decode = call.cu_seqlens_q.empty();
    const auto next = static_cast<size_t>(r) + 1;
    rows.cu_seqlens_q.push_back(decode ? static_cast<int32_t>(next) : call.cu_seqlens_q[next]);
    const RequestPages pages = request_pages(call.pages, call.cache.page_size, r);
    std::vector<int32_t>& keys = rows.keys.emplace_back();
    for (int32_t k = 0; k < pages.kv_len; ++k)
      keys.push_back(slot_of(pages, call.cache.page_size, k));
  }
  scene_.page_size = call.cache.page_size;
  take_tokens(call.cache);
  take_params(call.params);
}

CallScene::CallScene(const RaggedAttention& call) {
  scene_.q = call.q;
  RowsRead& rows = scene_.rows;
  rows.cu_seqlens_q.assign(call.cu_seqlens_q.begin(), call.cu_seqlens_q.end());
  for (size_t r = 0; r + 1 < call.cu_seqlens_k.size(); ++r) {
    std::vector<int32_t>& keys = rows.keys.emplace_back();
    const auto used = call.params.terms.seqused_k;
    const int32_t first = call.cu_seqlens_k[r];
    const int32_t end = used.empty() ? call.cu_seqlens_k[r + 1] : first + used[r];
    for (int32_t k = first; k < end; ++k) keys.push_back(k);
  }
  const auto in_pages = [](const ConstTensorView& t) {
    TensorView view = writable(t);
    view.rank = 4;
    view.shape = {t.shape[0], 1, t.shape[1], t.shape[2]};
    view.stride = {t.stride[0], t.stride[0], t.stride[1], t.stride[2]};
    return view;
  };
  scene_.tokens = KvCache::nhd(in_pages(call.k), in_pages(call.v));
  scene_.tokens.k_scale = call.k_scale, scene_.tokens.v_scale = call.v_scale;
  take_params(call.params);
}

void CallScene::take_params(const AttentionParams& params) {
  scene_.params = params;
  scene_.params.custom_mask = {};
  const CustomMask& mask = params.custom_mask;
  scene_.rows.masks_of_heads = mask.heads > 1;
  scene_.rows.q_lens.assign(params.terms.seqused_q.begin(), params.terms.seqused_q.end());
  for (size_t r = 0; mask.kind != CustomMask::Kind::kNone && r < scene_.rows.keys.size(); ++r) {
    const int64_t pairs =
        int64_t{mask.heads} * scene_.rows.q_len(r) * std::ssize(scene_.rows.keys[r]);
    scene_.rows.masks.push_back(pairs_of(mask, r, pairs));
  }
}

KvPlane CallScene::copy(const KvCache& cache, const KvPlane& plane, Plane* to) {
  const int64_t slots = cache.num_slots(), heads = cache.num_kv_heads, dim = plane.head_dim;
  const auto item = static_cast<int64_t>(size_of(plane.dtype));
  to->elements.resize(static_cast<size_t>(slots * heads * dim * item));
  std::byte* at = to->elements.data();
  for (int64_t slot = 0; slot < slots; ++slot) {
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t page = slot / cache.page_size, token = slot % cache.page_size;
      for (int64_t d = 0; d < dim; ++d, at += item)
        std::memcpy(at, plane.data + plane.offset(page, token, head, d) * item,
                    static_cast<size_t>(item));
      if (plane.scales != nullptr)
        to->scales.push_back(plane.scales[plane.scale_offset(page, token, head)]);
    }
  }
  KvPlane p{.data = to->elements.data(), .dtype = plane.dtype};
  p.page_stride = p.token_stride = heads * dim, p.head_stride = dim;
  p.head_dim = plane.head_dim;
  if (to->scales.empty()) return p;
  p.scales = to->scales.data();
  p.scale_page_stride = p.scale_token_stride = heads, p.scale_head_stride = 1;
  return p;
}

void CallScene::take_tokens(const KvCache& cache) {
  scene_.tokens = slot_view(cache);
  if (scene_.tokens.well_formed) return;
  scene_.tokens = cache;
  scene_.tokens.k = copy(cache, cache.k, &k_), scene_.tokens.v = copy(cache, cache.v, &v_);
  scene_.tokens.num_pages = cache.num_slots(), scene_.tokens.page_size = 1;
}

std::vector<Explanation> diagnose_call(const PagedAttention& call, const Result& result,
                                       const Arithmetic& arithmetic) {
  return diagnose(CallScene(call).scene(), result, arithmetic);
}

std::vector<Explanation> diagnose_call(const RaggedAttention& call, const Result& result,
                                       const Arithmetic& arithmetic) {
  return diagnose(CallScene(call).scene(), result, arithmetic);
}

}  // namespace shadowgraph
