// Faults of the masks that a verified draft is seen through.
#pragma once

#include "check/tap.h"

namespace shadowgraph {

/// The mask of a verify is still there when the next plan has none, and is taken for that step's:
/// of a backend that masks wherever it has a mask.
class MaskOfTheLastVerify final : public Tap {
 public:
  void baked(Meta& meta, bool capturing) override;

 private:
  Buffer mask_, indptr_, depths_;
};

/// The mask's buffer has room for the context, and none for the drafts.
struct MaskWithoutDrafts final : Tap {
  void bound(Meta& meta, bool capturing) override;
};

/// Padding has offsets into the mask, and no mask.
struct MaskWithoutPadding final : Tap {
  Status filled(const ForwardBatch& batch, Meta& meta) override;
};

}  // namespace shadowgraph
