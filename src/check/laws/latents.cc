// What metadata of DeepSeek-V4 says of each token: what it sees of its window and of whole blocks,
// where it is stored, which block it ends, and where the compressor's state is.
#include <algorithm>
#include <span>
#include <vector>

#include "attn/page_table.h"
#include "backends/sparse/deepseek_v4_hip.h"
#include "check/laws/judges.h"
#include "check/worlds/v4_reference.h"

namespace shadowgraph {
namespace {

/// One token of a request.
struct SeenKeys {
  const V4Places& places;
  const RequestExtent& extent;
  int64_t token = 0;  // of the step
  int64_t first = 0;  // of its request
  int32_t position = 0;
  int32_t pool_row = 0;

  int32_t len() const { return position + 1; }
};

class LatentJudge {
 public:
  LatentJudge(const MetaFacts& m, LawReport& report) : m_(m), report_(report) {
    for (const LayerKind& kind : m.model.layers)
      if (const V4Layer* l = v4_of(kind); l != nullptr && first_ == nullptr) first_ = l;
    prefill_ = DeepseekV4Hip::is_prefill(m.limits.mode);
  }

  void run() {
    if (first_ == nullptr) return;
    for (const BufferInfo& r : m_.info.buffers) {
      if (m_.size(r.buffer) == 0) continue;
      judge_width(r);
      for (int64_t i = 0; i < m_.requests(); ++i) judge_request(r, i);
      for (int64_t t = m_.tokens(); t < m_.limits.tokens; ++t) judge_padding(r, t);
    }
  }

 private:
  const V4Layer* layer_of(const BufferInfo& r) const {
    return r.group ? DeepseekV4::layer_of(m_.model, *r.group) : first_;
  }
  bool is_unified() const { return first_->pools == V4Pools::kUnified; }

  void expect(LawId law, int buffer, int64_t i, int64_t want) {
    if (i >= m_.size(buffer)) return;
    judged(law);
    if (const int64_t got = m_.value(buffer, i); got != want)
      report_.fail(law, at(m_.buffer(buffer).name, i), number(want), number(got));
  }

  /// fi.I-106.
  void judge_width(const BufferInfo& r) {
    if (r.role != Role::kWindowSlots && r.role != Role::kBlockSlots) return;
    const Buffer& b = m_.buffer(r.buffer);
    const LawId law =
        r.role == Role::kWindowSlots ? LawId("latent.window") : LawId("latent.blocks");
    judged(law);
    if (b.shape[1] % kV4ListColumns == 0) return;
    report_.fail(law, at(b.name), "a multiple of " + number(kV4ListColumns) + " columns",
                 number(b.shape[1]));
  }

  void judge_request(const BufferInfo& r, int64_t i) {
    const V4Layer* l = layer_of(r);
    if (l == nullptr) return;
    const V4Places places(*l, m_.model, m_.batch, i);
    const RequestExtent& e = m_.extent(i);
    for (int32_t j = 0; j < e.q_len; ++j) {
      const SeenKeys t{places,           e,
                       m_.tokens(i) + j, m_.tokens(i),
                       e.prefix_len + j, m_.batch.req_pool_indices[static_cast<size_t>(i)]};
      judge_window(r, t);
      judge_blocks(r, *l, t);
      judge_lists(r, *l, t);
      if (r.role == Role::kTokenPages) judge_table(r, t);
    }
  }

  /// fi.I-103: all tokens of a request have its pages.
  void judge_table(const BufferInfo& r, const SeenKeys& t) {
    const int64_t width = m_.buffer(r.buffer).shape[1];
    const std::span<const int32_t> slots = m_.batch.req_to_token.row(t.pool_row);
    const int64_t pages = pages_for(t.extent.kv_len, m_.model.page_size);
    for (int64_t c = 0; c < std::min(pages, width); ++c)
      expect("sparse.table", r.buffer, t.token * width + c,
             slots[static_cast<size_t>(c * m_.model.page_size)] / m_.model.page_size);
  }

  /// fi.I-104.
  void judge_window(const BufferInfo& r, const SeenKeys& t) {
    const LawId law = "latent.window";
    const int32_t seen = std::min(t.len(), first_->window);
    switch (r.role) {
      case Role::kTokenLens: return expect(law, r.buffer, t.token, t.len());
      case Role::kTokenPositions: return expect(law, r.buffer, t.token, t.position);
      case Role::kTokenPoolRows: return expect(law, r.buffer, t.token, t.pool_row);
      case Role::kWindowSeen: return expect(law, r.buffer, t.token, seen);
      case Role::kWindowStored: {
        // A prefill of rings stores what the next token can see.
        const bool gone = is_unified() && prefill_ && t.extent.kv_len - t.len() >= first_->window;
        return expect("slot.write", r.buffer, t.token, gone ? 0 : t.places.token(t.position));
      }
      case Role::kWindowSlots: {
        const int64_t columns = m_.buffer(r.buffer).shape[1];
        for (int64_t j = 0; j < columns; ++j)
          expect(law, r.buffer, t.token * columns + j,
                 j < seen ? t.places.token(t.position - static_cast<int32_t>(j)) : -1);
        return;
      }
      default: return;
    }
  }

  /// fi.I-105.
  void judge_blocks(const BufferInfo& r, const V4Layer& l, const SeenKeys& t) {
    if (!r.group) return;
    const int32_t whole = t.len() / l.ratio, block = t.position / l.ratio;
    const bool ends = t.len() % l.ratio == 0;
    const LawId blocks = "latent.blocks";
    switch (r.role) {
      case Role::kBlockStored:
        return expect("latent.block_end", r.buffer, t.token, ends ? t.places.block(block) : 0);
      case Role::kBlocksWhole: return expect(blocks, r.buffer, t.token, whole);
      case Role::kBlocksClamped: return expect(blocks, r.buffer, t.token, std::max(1, whole));
      case Role::kBlocksChosen:
        return expect(blocks, r.buffer, t.token, std::min(std::max(1, whole), l.index_topk));
      case Role::kBlockSlots: {
        const int64_t columns = m_.buffer(r.buffer).shape[1];
        for (int64_t j = 0; j < columns; ++j)
          expect(blocks, r.buffer, t.token * columns + j,
                 j < whole ? t.places.block(static_cast<int32_t>(j)) : -1);
        return;
      }
      case Role::kStatePages:
        return expect("latent.state", r.buffer, t.token, t.places.state(block));
      case Role::kExtraPages: {
        const bool both = ends && l.shape().overlaps() && block > 0;
        return expect("latent.state", r.buffer, t.token, both ? t.places.state(block - 1) : 0);
      }
      default: return;
    }
  }

  /// What the ragged lists of a unified pool have for a token, in order.
  void judge_lists(const BufferInfo& r, const V4Layer& l, const SeenKeys& t) {
    if (r.role != Role::kLatentList && r.role != Role::kOwnRows) return;
    const int32_t first = std::max(0, t.len() - first_->window);
    const int32_t old_end = prefill_ ? t.extent.prefix_len : t.len();
    std::vector<int64_t> window, blocks;
    if (r.role == Role::kLatentList) {
      for (int32_t k = std::min(old_end, t.len()) - 1; k >= first; --k)
        window.push_back(t.places.token(k));
      for (int32_t b = 0; r.group && b < t.len() / l.ratio; ++b)
        blocks.push_back(t.places.block(b));
    } else {
      for (int32_t k = t.position; k >= std::max(first, old_end); --k)
        window.push_back(t.first + k - t.extent.prefix_len);
    }
    if (t.token + 1 >= m_.size(r.lens)) return;
    const int64_t begin = m_.value(r.lens, t.token), end = m_.value(r.lens, t.token + 1);
    const auto count = std::ssize(window) + std::ssize(blocks);
    judged("latent.window");
    if (end - begin != count || begin < 0 || end > m_.size(r.buffer)) {
      report_.fail("latent.window", at(m_.buffer(r.lens).name, t.token), number(count),
                   number(end - begin));
      return;
    }
    for (int64_t j = 0; j < std::ssize(window); ++j)
      expect("latent.window", r.buffer, begin + j, window[static_cast<size_t>(j)]);
    for (int64_t j = 0; j < std::ssize(blocks); ++j)
      expect("latent.blocks", r.buffer, begin + std::ssize(window) + j,
             blocks[static_cast<size_t>(j)]);
  }

  /// Padding is the first token of nobody's request: its numbers follow from its length, and what
  /// it stores and sees is below the first slot of requests.
  void judge_padding(const BufferInfo& r, int64_t t) {
    const V4Layer* l = layer_of(r);
    if (l == nullptr || t >= m_.size(r.buffer)) return;
    const int64_t len = t < m_.size(V4Buffers::kSeqLens) ? m_.value(V4Buffers::kSeqLens, t) : 1;
    judge_padding_numbers(r, *l, t, len);
    const int64_t first_token = V4Places::first_token(*l, m_.model);
    const auto first_block = [&] { return V4Places::first_block(*l, m_.model); };
    switch (r.role) {
      case Role::kWindowStored: return below("slot.write", r.buffer, t, first_token);
      case Role::kBlockStored: return below("latent.block_end", r.buffer, t, first_block());
      case Role::kStatePages:
      case Role::kExtraPages:
        return below("latent.state", r.buffer, t, V4Places::states_a_page(*l, m_.model));
      case Role::kWindowSlots:
        return judge_padding_list("latent.window", r.buffer, t,
                                  std::min<int64_t>(len, first_->window), first_token);
      case Role::kBlockSlots:
        return judge_padding_list("latent.blocks", r.buffer, t, len / l->ratio, first_block());
      case Role::kTokenPages: {
        const int64_t width = m_.buffer(r.buffer).shape[1];
        for (int64_t c = 0; c < std::min(pages_for(len, m_.model.page_size), width); ++c)
          expect("sparse.table", r.buffer, t * width + c, 0);
        return;
      }
      default: return;
    }
  }

  void judge_padding_numbers(const BufferInfo& r, const V4Layer& l, int64_t t, int64_t len) {
    const LawId law = "len.padding";
    const int64_t whole = r.group ? len / l.ratio : 0, clamped = std::max<int64_t>(1, whole);
    switch (r.role) {
      case Role::kTokenLens:
        judged(law);
        if (len < 1 || len > m_.limits.max_kv_len)
          report_.fail(law, at(m_.buffer(r.buffer).name, t), "1 to " + number(m_.limits.max_kv_len),
                       number(len));
        return;
      case Role::kTokenPositions: return expect(law, r.buffer, t, len - 1);
      case Role::kTokenPoolRows: return expect("latent.window", r.buffer, t, 0);
      case Role::kWindowSeen:
        return expect(law, r.buffer, t, std::min<int64_t>(len, first_->window));
      case Role::kBlocksWhole: return expect(law, r.buffer, t, whole);
      case Role::kBlocksClamped: return expect(law, r.buffer, t, clamped);
      case Role::kBlocksChosen:
        return expect(law, r.buffer, t, std::min<int64_t>(clamped, l.index_topk));
      default: return;
    }
  }

  /// -1, or a slot below the first of requests.
  void below(LawId law, int buffer, int64_t i, int64_t end) {
    if (i >= m_.size(buffer)) return;
    judged(law);
    if (const int64_t got = m_.value(buffer, i); got < -1 || got >= end)
      report_.fail(law, at(m_.buffer(buffer).name, i), "-1 to " + number(end - 1), number(got));
  }
  void judge_padding_list(LawId law, int buffer, int64_t t, int64_t count, int64_t end) {
    const int64_t columns = m_.buffer(buffer).shape[1];
    for (int64_t j = 0; j < columns; ++j) below(law, buffer, t * columns + j, j < count ? end : 0);
  }

  const MetaFacts& m_;
  LawReport& report_;
  const V4Layer* first_ = nullptr;
  bool prefill_ = false;
};

}  // namespace

void judge_latents(const MetaFacts& m, LawReport& report) { LatentJudge(m, report).run(); }

}  // namespace shadowgraph
