#include "check/worlds/row_contents.h"

#include <span>

#include "attn/row_keys.h"

namespace shadowgraph {
namespace {

class RowNames {
 public:
  RowNames(const Step& step, const ForwardBatch& batch, const LayerKind& kind,
           const ModelConfig& model)
      : s_(step), b_(batch), kind_(kind), model_(model) {}

  RowContents run() {
    for (int64_t i = 0; i < b_.size(); ++i) {
      const RequestExtent e = b_.extent(i);
      if (kind_.cross) {
        add_encoder(i);
        continue;
      }
      for (int32_t branch = 0; branch < rows_a_request(b_); ++branch) add_text(i, e, branch);
      first_ += e.q_len;
    }
    return std::move(contents_);
  }

 private:
  TokenContent content(std::span<const Chain> chains, size_t at, int64_t request, int32_t position,
                       Chain none) const {
    const OwnerId owner = s_.requests[static_cast<size_t>(request)];
    if (at < chains.size()) return {chains[at], owner, position};
    return {extend(extend(none, static_cast<int32_t>(owner)), position), owner, position};
  }

  std::span<const Chain> prefix_of(int64_t request) const {
    if (request + 1 >= std::ssize(s_.chains.prefix_indptr)) return {};
    return s_.chains.prefix_of(static_cast<size_t>(request));
  }

  /// A branch has its own tokens up to this step behind what is stored for all.
  void add_text(int64_t i, const RequestExtent& e, int32_t branch) {
    const bool drafts = b_.mode == ForwardMode::kDraftDecode;
    const int32_t drafted = drafts ? b_.spec.step + 1 : e.q_len;
    const int64_t first = drafts ? (i * b_.spec.topk + branch) * b_.spec.num_steps : first_;
    std::vector<TokenContent>& keys = contents_.keys.emplace_back();
    for (int32_t p = 0; p < e.kv_len; ++p) {
      const int32_t fresh = p - (e.kv_len - drafted);
      TokenContent c =
          fresh < 0 ? content(prefix_of(i), static_cast<size_t>(p), i, p, kNoTokens)
                    : content(s_.chains.fresh, static_cast<size_t>(first + fresh), i, p, kNoTokens);
      if (p >= e.prefix_len) contents_.fresh.push_back(c);
      if (p % model_.dcp_size == model_.dcp_rank) keys.push_back(c);
    }
  }

  void add_encoder(int64_t i) {
    std::vector<TokenContent>& keys = contents_.keys.emplace_back();
    for (int32_t p = 0; p < b_.encoder_len(i); ++p)
      keys.push_back(content(s_.chains.encoder, encoder_first_++, i, p, kNoEncoderTokens));
  }

  const Step& s_;
  const ForwardBatch& b_;
  const LayerKind& kind_;
  const ModelConfig& model_;
  int64_t first_ = 0;  // of the request's new tokens
  size_t encoder_first_ = 0;
  RowContents contents_;
};

}  // namespace

RowContents row_contents(const Step& step, const ForwardBatch& batch, const LayerKind& kind,
                         const ModelConfig& model) {
  return RowNames(step, batch, kind, model).run();
}

}  // namespace shadowgraph
