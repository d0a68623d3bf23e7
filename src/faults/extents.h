// Faults of what lengths are taken to mean. Spec faults-known K01, K31.
#pragma once

#include <vector>

#include "check/tap.h"

namespace shadowgraph {

/// The lengths of a draft extend are taken for full ones, and are the prefix.
class PrefixOnlyExtent final : public Tap {
 public:
  void batch(ForwardBatch& batch) override;

 private:
  std::vector<int32_t> lens_;
};

/// They are full ones, and taken for the prefix.
class DoubleCountedExtent final : public Tap {
 public:
  void batch(ForwardBatch& batch) override;

 private:
  std::vector<int32_t> lens_;
};

class FirstEncoderLength final : public Tap {
 public:
  void batch(ForwardBatch& batch) override;

 private:
  std::vector<int32_t> lens_;
};

}  // namespace shadowgraph
