#include "check/laws/facts.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace shadowgraph {
namespace {

/// Attend over the same keys, and see the same of them.
bool alike(const LayerKind& a, const LayerKind& b) {
  const AttentionParams &p = a.params, &q = b.params;
  return a.cross == b.cross && a.local == b.local && a.mla == b.mla &&
         a.dual_chunk == b.dual_chunk && p.causal == q.causal && p.window_left == q.window_left &&
         p.window_right == q.window_right;
}

template <class T>
int64_t load(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

MetaFacts::MetaFacts(const Backend& backend, const ForwardBatch& b, const ModelConfig& m,
                     const Meta& of, bool has_run)
    : info(backend.info()), batch(b), model(m), meta(of), limits(of.limits), ran(has_run) {
  for (const Buffer& buffer : meta.buffers) {
    Array& array = arrays_.emplace_back();
    if (buffer.data == nullptr) continue;
    const bool by_launches =
        buffer.lifetime == Lifetime::kScratch || buffer.lifetime == Lifetime::kPersistent;
    array.data = by_launches ? (ran ? buffer.data : nullptr) : meta.arena.staged(buffer);
    array.dtype = buffer.dtype;
    if (array.data != nullptr) array.size = buffer.numel();
  }
  tokens_.push_back(0);
  const int64_t branches = batch.mode == ForwardMode::kDraftDecode ? batch.spec.topk : 1;
  for (int64_t i = 0; i < batch.size(); ++i) {
    extents_.push_back(batch.extent(i));
    tokens_.push_back(tokens_.back() + branches * extents_.back().q_len);
  }
  for (const LayerKind& kind : model.layers) add_kind(backend, kind);
}

void MetaFacts::add_kind(const Backend& backend, const LayerKind& kind) {
  if (!is_dense_attention(kind)) return;  // it has no keys
  const auto same = [&](const KindFacts& k) { return alike(*k.kind, kind); };
  if (std::ranges::any_of(kinds_, same)) return;
  std::vector<KeyList> lists = backend.key_lists(meta, kind);
  if (lists.empty()) return;
  kinds_.push_back({&kind, std::move(lists), canonical_rows(batch, kind, model)});
}

int64_t MetaFacts::value(int buffer, int64_t i) const {
  const Array& a = arrays_[static_cast<size_t>(buffer)];
  switch (a.dtype) {
    case DType::kI64: return load<int64_t>(a.data, i);
    case DType::kU8: return load<uint8_t>(a.data, i);
    default: return load<int32_t>(a.data, i);
  }
}

float MetaFacts::real(int buffer, int64_t i) const {
  float value;
  const Array& a = arrays_[static_cast<size_t>(buffer)];
  std::memcpy(&value, a.data + static_cast<size_t>(i) * sizeof value, sizeof value);
  return value;
}

void LawReport::fail(LawId law, Where where, std::string expected, std::string got) {
  for (size_t i = 0; i < findings_.size(); ++i) {
    if (findings_[i].id != law.law().id || findings_[i].where.field != where.field) continue;
    ++more_[i];
    return;
  }
  findings_.push_back(make_finding(law, std::move(where), std::move(expected), std::move(got)));
  more_.push_back(0);
}

Status LawReport::take() {
  Status status;
  for (size_t i = 0; i < findings_.size(); ++i) {
    if (more_[i] > 0) findings_[i].got += " (and " + number(more_[i]) + " more)";
    status.add(std::move(findings_[i]));
  }
  return status;
}

}  // namespace shadowgraph
