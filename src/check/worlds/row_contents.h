// RowContents names what each key of a step's rows must hold, from the step's chains; contents have
// numbers, which say whose tokens they are. Tested by tests/check/row_contents_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/step.h"
#include "shadowgraph/engine/backend.h"

namespace shadowgraph {

/// A token's content, and for people the place where it was first seen.
struct TokenContent {
  Chain chain = 0;
  OwnerId request = 0;
  int32_t position = 0;

  /// "token 5 of request 2"
  std::string to_string() const {
    return "token " + std::to_string(position) + " of request " + std::to_string(request);
  }
};

struct RowContents {
  std::vector<std::vector<TokenContent>> keys;  // as CanonicalRows::keys
  std::vector<TokenContent> fresh;              // [tokens] new ones, on whichever rank
};

/// Tokens whose chain the step does not say are their request's own. batch: views of the step, or
/// of another step of its whole draft. Requires a batch that validate() accepts, with req_to_token.
RowContents row_contents(const Step& step, const ForwardBatch& batch, const LayerKind& kind,
                         const ModelConfig& model);

/// Contents that a layer has met in a history, by numbers from 0 on.
class ContentNumbers {
 public:
  /// And whether the number is new. key: the chain, with what else its bytes depend on.
  std::pair<int32_t, bool> add(uint64_t key, const TokenContent& content) {
    const auto [at, fresh] = numbers_.try_emplace(key, static_cast<int32_t>(contents_.size()));
    if (fresh) contents_.push_back(content);
    return {at->second, fresh};
  }
  const TokenContent& operator[](int32_t number) const {
    return contents_[static_cast<size_t>(number)];
  }
  int32_t size() const { return static_cast<int32_t>(contents_.size()); }
  void clear() { numbers_.clear(), contents_.clear(); }

 private:
  std::unordered_map<uint64_t, int32_t> numbers_;
  std::vector<TokenContent> contents_;
};

}  // namespace shadowgraph
