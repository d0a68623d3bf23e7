#include "fuzz/call/sparse_exact.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/float_formats.h"
#include "core/laws.h"
#include "oracle/sparse_oracle.h"

namespace shadowgraph {
namespace {

/// Keys of which it is tried, for each slot, whether that was read instead.
constexpr int64_t kFew = 24;

/// A slot of a list's pool, and what lies in it.
struct Key {
  const char* list;
  int64_t slot;
  std::vector<double> latent;
  bool hot() const { return latent.back() > 0; }
};

class ExactToken {
 public:
  ExactToken(const Case& x, const SparseAttention& call, int64_t token)
      : call_(call), far_(x.data == CaseData::kSelector || is_shifted(x.data)) {
    for (const ChosenKeys* list : {&call.keys, &call.extra}) {
      if (!list->defined()) continue;
      for (const int32_t slot : list->of(token))
        if (slot >= 0) keys_.push_back(key_of(*list, slot));
    }
  }

  /// The mean of what weighs 1, in the bits that it is stored in; `left_out` of the keys does not
  /// count, `more` does.
  bool explains(const std::byte* got, int64_t left_out = -1, const Key* more = nullptr) const {
    const bool hot = any_hot(left_out, more);
    int64_t weights = call_.sinks.empty() || hot ? 0 : 1;
    std::vector<double> sums(static_cast<size_t>(call_.head_dim_v), 0.0);
    bool sees = false;
    const auto add = [&](const Key& key) {
      sees = true;
      if (hot && !key.hot()) return;
      ++weights;
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += key.latent[i];
    };
    for (int64_t k = 0; k < std::ssize(keys_); ++k)
      if (k != left_out) add(keys_[static_cast<size_t>(k)]);
    if (more != nullptr) add(*more);
    for (size_t i = 0; i < sums.size(); ++i) {
      // Integers of less than 24 bits: the quotient is rounded to f32 once.
      const float mean = sees ? static_cast<float>(sums[i]) / static_cast<float>(weights) : 0.F;
      std::byte expected[4] = {};
      const size_t size = size_of(call_.out.dtype);
      store_float(expected, call_.out.dtype, 0, mean);
      if (std::memcmp(got + i * size, expected, size) != 0) return false;
    }
    return true;
  }

  /// Which slot was read or left out, or nothing.
  std::string name_source(const std::byte* got) const {
    constexpr int64_t kTried = 8192;  // the last slots: of a far pool all that there are
    for (int64_t k = 0; k < std::ssize(keys_); ++k)
      if (explains(got, k)) return ", as if it did not see " + name(keys_[static_cast<size_t>(k)]);
    for (const ChosenKeys* list : {&call_.keys, &call_.extra}) {
      const int64_t slots = list->defined() ? list->pool.slots() : 0;
      for (int64_t slot = std::max<int64_t>(0, slots - kTried); slot < slots; ++slot) {
        const Key key = key_of(*list, slot);
        if (explains(got, -1, &key)) return ", as if it saw " + name(key) + ", too";
        for (int64_t k = 0; k < std::ssize(keys_) && std::ssize(keys_) <= kFew; ++k)
          if (explains(got, k, &key))
            return ", as if it saw " + name(key) + " instead of " +
                   name(keys_[static_cast<size_t>(k)]);
      }
    }
    return "";
  }
  size_t seen() const { return keys_.size(); }

 private:
  Key key_of(const ChosenKeys& list, int64_t slot) const {
    return {&list == &call_.keys ? "keys" : "extra", slot, latent_of(list.pool, slot)};
  }
  static std::string name(const Key& key) {
    return std::string("slot ") + std::to_string(key.slot) + " of " + key.list;
  }
  bool any_hot(int64_t left_out, const Key* more) const {
    bool hot = more != nullptr && more->hot();
    for (int64_t k = 0; k < std::ssize(keys_); ++k)
      hot |= k != left_out && keys_[static_cast<size_t>(k)].hot();
    return far_ && hot;
  }

  const SparseAttention& call_;
  const bool far_;  // hot keys' logits are far above 0, and all keys' alike
  std::vector<Key> keys_;
};

}  // namespace

Status check_exact_attention(const Case& x, const SparseAttention& call) {
  Status status;
  for (int64_t t = 0; t < call.q.shape[0]; ++t) {
    const ExactToken token(x, call, t);
    for (int64_t head = 0; head < call.q.shape[1]; ++head) {
      const std::byte* got = call.out.at(t, head);
      if (token.explains(got)) continue;
      status.add(make_finding("num.exact", at("out", t, head),
                              "the mean of " + std::to_string(token.seen()) + " latents",
                              "another" + token.name_source(got)));
      return status;
    }
  }
  return status;
}

}  // namespace shadowgraph
