// What laws of metadata are judged by: the values of one Meta, the roles of its buffers, and what
// the batch asks of them. An index outside a buffer is never read. Tested by
// tests/check/metadata_laws_test.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "check/canonical.h"
#include "core/laws.h"
#include "shadowgraph/engine/backend.h"
#include "shadowgraph/engine/buffer_info.h"

namespace shadowgraph {

/// Layers that attend over the same keys.
struct KindFacts {
  const LayerKind* kind = nullptr;  // the first of them
  std::vector<KeyList> lists;
  CanonicalRows rows;
};

class MetaFacts {
 public:
  /// All outlive this. ran: as judge_metadata says.
  MetaFacts(const Backend& backend, const ForwardBatch& batch, const ModelConfig& model,
            const Meta& meta, bool ran);
  MetaFacts(const MetaFacts&) = delete;
  MetaFacts& operator=(const MetaFacts&) = delete;

  const BackendInfo& info;
  const ForwardBatch& batch;
  const ModelConfig& model;
  const Meta& meta;
  const Limits& limits;
  const bool ran;  // the step: the device has what was uploaded for it

  std::span<const KindFacts> kinds() const { return kinds_; }

  /// Elements that can be read; 0: not bound in this mode, or not written yet. A table that a
  /// launch gathers has its shape before the launch, and no elements.
  int64_t size(int buffer) const {
    const auto i = static_cast<size_t>(buffer);
    return buffer >= 0 && i < arrays_.size() ? arrays_[i].size : 0;
  }
  /// Requires i in 0 <= i < size(buffer).
  int64_t value(int buffer, int64_t i) const;
  /// An element of an f32 buffer.
  float real(int buffer, int64_t i) const;
  const Buffer& buffer(int id) const { return meta[static_cast<size_t>(id)]; }
  /// Tokens of this rank that a column of the table stands for.
  int64_t unit(int table) const { return meta.units[static_cast<size_t>(table)] / model.dcp_size; }

  int64_t requests() const { return batch.size(); }
  const RequestExtent& extent(int64_t request) const {
    return extents_[static_cast<size_t>(request)];
  }
  /// Queries of a request, those of all its branches, and of all requests before one.
  int64_t queries(int64_t request) const { return tokens(request + 1) - tokens(request); }
  int64_t tokens(int64_t before) const { return tokens_[static_cast<size_t>(before)]; }
  int64_t tokens() const { return tokens_.back(); }
  /// How many of a request's `tokens` this rank has.
  int64_t on_rank(int64_t tokens) const {
    return tokens / model.dcp_size + (model.dcp_rank < tokens % model.dcp_size ? 1 : 0);
  }
  /// How many of so many rows are a request's: a draft has some for each branch. 0: not as many for
  /// each.
  int64_t rows_a_request(int64_t rows) const {
    return limits.rows > 0 && rows % limits.rows == 0 ? rows / limits.rows : 0;
  }

 private:
  struct Array {
    const std::byte* data = nullptr;
    int64_t size = 0;
    DType dtype = DType::kI32;
  };
  void add_kind(const Backend& backend, const LayerKind& kind);

  std::vector<Array> arrays_;  // by Meta's numbering
  std::vector<RequestExtent> extents_;
  std::vector<int64_t> tokens_;
  std::vector<KindFacts> kinds_;
};

/// Findings of one judgement: of a law the first of each field, and how many more.
class LawReport {
 public:
  void fail(LawId law, Where where, std::string expected, std::string got);
  Status take();

 private:
  std::vector<Finding> findings_;
  std::vector<int64_t> more_;
};

inline std::string number(int64_t n) { return std::to_string(n); }

}  // namespace shadowgraph
