// Faults of slots: units of pages, and the window's pool.
#pragma once

#include <cstdint>
#include <vector>

#include "check/tap.h"

namespace shadowgraph {

/// A draft's lists have the pages of the allocator, and its kernel takes them for its own smaller
/// ones: slots.
struct DraftListsOfPages final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// The map of slots to the window's pool is looked up at numbers of pages.
struct PagesTranslated final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

/// A slot's place in the window's pool is remembered, also when its page has got another.
class RememberedTranslation final : public Tap {
 public:
  void batch(ForwardBatch& batch) override;

 private:
  std::vector<int64_t> memo_;
};

}  // namespace shadowgraph
