// DeepSeek-V4 as SGLang drives it on AMD: latents of tokens and blocks in one unified pool. A
// request's tokens lie in a ring of its row of req_to_token, its blocks behind all rings, so one
// ragged list has all that a token sees. A prefill attends to its own latents as they come, and
// stores the last of them afterwards. Rings are not shared: no request has another's prefix.
// Facts: docs/metadata.md "DeepSeek-V4". Tested by tests/backends/deepseek_v4_test.cc.
#pragma once

#include "backends/sparse/deepseek_v4.h"

namespace shadowgraph {

class DeepseekV4Hip final : public DeepseekV4 {
 public:
  /// Behind the common buffers. Lists of layers without blocks, of c4's, of c128's.
  enum OwnId : uint8_t { kLists, kIndptrs = kLists + 3, kOwnList = kIndptrs + 3, kOwnIndptr, kEnd };
  /// kind: 0 without blocks, else 1 + its V4Group.
  static constexpr size_t list(int kind) { return kFirstOwn + kLists + static_cast<size_t>(kind); }
  static constexpr size_t indptr(int kind) {
    return kFirstOwn + kIndptrs + static_cast<size_t>(kind);
  }
  /// Rows of LayerIo::own's latents, of a prefill: a token's own request, the newest first.
  static constexpr size_t own(OwnId id) { return kFirstOwn + id; }

  const BackendInfo& info() const override;
  /// Attends before it stores.
  static bool is_prefill(ForwardMode mode);

 protected:
  V4Pools pools() const override { return V4Pools::kUnified; }
  size_t num_own() const override { return kEnd; }
  void bind_lists(Binder& binder, const Limits& limits) const override;
  void fill_lists(Scene& s, Writer& writer, const V4Token& t) const override;
  void end_lists(const Scene& s) const override;
  void run(Stream& stream, const Meta& meta, const Layer& l) const override;

 private:
  /// A layer's, or nullptr for the layers without blocks; false: no layer has such a list.
  static bool has_list(const ModelConfig& model, int kind, const V4Layer** layer);
};

}  // namespace shadowgraph
