// States as a function of tokens: what a recurrent layer is given of each token, and the state that
// a chain of tokens leaves, computed from nothing but these. Tested by
// tests/check/recurrent_world_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "check/runner.h"
#include "check/worlds/recurrent_reference.h"
#include "check/worlds/row_contents.h"
#include "shadowgraph/device/arena.h"

namespace shadowgraph {

/// A token gives a layer one row of each of these inputs that is bound.
struct RecurrentInputs {
  Buffer x, gate, b, z, q, k, v;  // those that the layer lacks have no data

  std::vector<const Buffer*> bound() const;
};

class StateBook {
 public:
  /// weights: the layer's, which the host can read; all outlive this. salt: of history and layer.
  StateBook(const RecurrentLayer& layer, const RecurrentInputs& inputs,
            const RecurrentTensors& weights, RunnerData data, uint64_t salt);

  /// Rows of an input for these tokens: [tokens, ...].
  std::vector<float> rows(const Buffer& input, std::span<const TokenContent> tokens) const;
  /// The state behind these tokens, at least one: of a pool of one slot. Good until the next call.
  const HostStates& behind(std::span<const TokenContent> tokens);
  /// It is computed: a pool of one slot.
  void put(const TokenContent& last, HostStates state);
  /// "the state behind 5 tokens of request 2"
  static std::string told(const TokenContent& last);
  /// Whose tokens that state is behind; nothing: it was never computed.
  std::optional<TokenContent> find(const HostStates& state) const;
  /// Another history begins.
  void clear(uint64_t salt) { salt_ = salt, states_.clear(); }

 private:
  struct Entry {
    TokenContent last;
    HostStates state;
  };
  HostStates run(HostStates from, bool has_prefix, std::span<const TokenContent> tokens) const;

  const RecurrentLayer& layer_;
  const RecurrentInputs& inputs_;
  const RecurrentTensors& weights_;
  const RunnerData data_;
  uint64_t salt_;
  std::unordered_map<Chain, Entry> states_;
};

}  // namespace shadowgraph
