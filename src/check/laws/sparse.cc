// Sparse layers: what each token sees and how many keys it chooses, where its request's keys are,
// and, once the launches have run, what was chosen.
#include <algorithm>
#include <vector>

#include "backends/sparse/dsa.h"
#include "check/laws/judges.h"

namespace shadowgraph {
namespace {

class ChosenKeysJudge {
 public:
  ChosenKeysJudge(const MetaFacts& m, const LayerKind& kind, LawReport& report)
      : m_(m),
        report_(report),
        layer_(*sparse_of(kind)),
        prefill_(is_sparse_prefill(m.limits.mode)),
        rows_(canonical_rows(m.batch, kind, m.model)) {
    for (int64_t i = 0; i < m.requests(); ++i) {
      for (int32_t j = 0; j < m.extent(i).q_len; ++j)
        tokens_.push_back({i, m.extent(i).prefix_len + j + 1, keys_});
      keys_ += m.extent(i).kv_len;
    }
  }

  void run() {
    for (const BufferInfo& r : m_.info.buffers) {
      if (m_.size(r.buffer) == 0) continue;
      judge(r);
    }
  }

 private:
  struct Token {
    int64_t request, seen, first;  // the last: where its request's keys begin among all
  };

  void judge(const BufferInfo& r) {
    const auto chosen = [&](const Token& t) { return std::min<int64_t>(t.seen, layer_.topk); };
    switch (r.role) {
      case Role::kExpandedLens:
        return each(r, "sparse.seen", m_.limits.max_kv_len, [](const Token& t) { return t.seen; });
      case Role::kChosenLens: return each(r, "sparse.counts", layer_.topk, chosen);
      case Role::kChosenOffsets: return offsets(r, chosen);
      case Role::kTokenOffsets: return offsets(r, [](const Token&) { return int64_t{1}; });
      case Role::kRequestOfToken:
        return each(r, "sparse.keys", m_.limits.rows, [](const Token& t) { return t.request; });
      case Role::kFirstKey:
        return each(r, "sparse.keys", INT32_MAX, [](const Token& t) { return t.first; });
      case Role::kBehindKeys:
        return each(r, "sparse.keys", INT32_MAX, [](const Token& t) { return t.first + t.seen; });
      case Role::kTokenTable: return table(r, 1);
      case Role::kTokenPages: return table(r, m_.model.page_size);
      case Role::kFlatSlots: return flat(r);
      case Role::kChoice: return choice(r);
      case Role::kChosenSlots: return slots(r);
      default: return;
    }
  }

  void fail(LawId law, const BufferInfo& r, int64_t row, int64_t column, int64_t want,
            int64_t got) {
    report_.fail(law, at(m_.buffer(r.buffer).name, row, column), number(want), number(got));
  }

  /// Compares the value of every token of the step; values behind them may be 0 to `most`.
  template <class Want>
  void each(const BufferInfo& r, LawId law, int64_t most, Want want_of) {
    const std::string& name = m_.buffer(r.buffer).name;
    for (int64_t t = 0; t < m_.size(r.buffer); ++t) {
      const int64_t got = m_.value(r.buffer, t);
      judged(t >= std::ssize(tokens_) ? LawId("len.padding") : law);
      if (t >= std::ssize(tokens_)) {
        if (got < 0 || got > most)
          report_.fail("len.padding", at(name, t), "0 to " + number(most), number(got));
      } else if (const int64_t want = want_of(tokens_[static_cast<size_t>(t)]); got != want) {
        report_.fail(law, at(name, t), number(want), number(got));
      }
    }
  }

  template <class Count>
  void offsets(const BufferInfo& r, Count count) {
    int64_t want = 0;
    for (int64_t t = 0; t <= std::ssize(tokens_) && t < m_.size(r.buffer); ++t) {
      const int64_t got = m_.value(r.buffer, t);
      judged("sparse.counts");
      if (got != want)
        report_.fail("sparse.counts", at(m_.buffer(r.buffer).name, t), number(want), number(got));
      if (t < std::ssize(tokens_)) want += count(tokens_[static_cast<size_t>(t)]);
    }
  }

  int64_t key(int64_t request, int64_t position) const {
    return rows_.keys[static_cast<size_t>(request)][static_cast<size_t>(position)];
  }

  /// Rows of tokens, of a prefill of requests; a column is so many tokens.
  void table(const BufferInfo& r, int64_t unit) {
    const int64_t width = m_.buffer(r.buffer).shape[1];
    const int64_t rows = prefill_ ? m_.requests() : std::ssize(tokens_);
    for (int64_t row = 0; row < std::min(rows, m_.buffer(r.buffer).shape[0]); ++row) {
      const int64_t request = prefill_ ? row : tokens_[static_cast<size_t>(row)].request;
      const int64_t keys = m_.extent(request).kv_len, columns = (keys + unit - 1) / unit;
      judged("table.capacity");
      judged("sparse.table", columns);
      if (columns > width) {
        report_.fail("table.capacity", at(m_.buffer(r.buffer).name, row), "<= " + number(width),
                     number(columns));
        continue;
      }
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t want = key(request, c * unit) / unit;
        const int64_t got = m_.value(r.buffer, row * width + c);
        if (got != want) fail("sparse.table", r, row, c, want, got);
      }
    }
  }

  void flat(const BufferInfo& r) {
    int64_t at_key = 0;
    for (int64_t i = 0; i < m_.requests(); ++i) {
      for (int64_t c = 0; c < m_.extent(i).kv_len && at_key < m_.size(r.buffer); ++c, ++at_key) {
        const int64_t got = m_.value(r.buffer, at_key);
        judged("sparse.keys");
        if (got != key(i, c))
          report_.fail("sparse.keys", at(m_.buffer(r.buffer).name, at_key), number(key(i, c)),
                       number(got));
      }
    }
  }

  /// fn(token's number, its place in a row, whether it has a choice there)
  template <class Fn>
  void each_choice(const BufferInfo& r, Fn fn) {
    const int64_t topk = layer_.topk;
    for (int64_t t = 0; t < std::ssize(tokens_) && (t + 1) * topk <= m_.size(r.buffer); ++t) {
      const int64_t count = std::min<int64_t>(tokens_[static_cast<size_t>(t)].seen, topk);
      for (int64_t j = 0; j < topk; ++j) fn(t, j, j < count);
    }
  }

  void choice(const BufferInfo& r) {
    each_choice(r, [&](int64_t t, int64_t j, bool chosen) {
      const int64_t first = t * layer_.topk, got = m_.value(r.buffer, first + j);
      judged("sparse.choice");
      const int64_t seen = tokens_[static_cast<size_t>(t)].seen;
      const std::string& name = m_.buffer(r.buffer).name;
      if (!chosen) {
        if (got != -1) fail("sparse.choice", r, t, j, -1, got);
      } else if (got < 0 || got >= seen) {
        report_.fail("sparse.choice", at(name, t, j), "0 to " + number(seen - 1), number(got));
      } else if (j > 0 && got <= m_.value(r.buffer, first + j - 1)) {
        report_.fail("sparse.choice", at(name, t, j), "behind the one before it", number(got));
      }
    });
  }

  /// Where the choice says.
  void slots(const BufferInfo& r) {
    const auto of = std::ranges::find(m_.info.buffers, Role::kChoice, &BufferInfo::role);
    if (of == m_.info.buffers.end() || m_.size(of->buffer) != m_.size(r.buffer)) return;
    each_choice(r, [&](int64_t t, int64_t j, bool chosen) {
      const Token& token = tokens_[static_cast<size_t>(t)];
      const int64_t place = m_.value(of->buffer, t * layer_.topk + j);
      if (chosen && (place < 0 || place >= token.seen)) return;  // the choice's own
      const bool packed = prefill_ && layer_.ragged_prefill;
      int64_t want = -1;
      if (chosen) want = packed ? token.first + place : key(token.request, place);
      const int64_t got = m_.value(r.buffer, t * layer_.topk + j);
      judged("sparse.choice");
      if (got != want) fail("sparse.choice", r, t, j, want, got);
    });
  }

  const MetaFacts& m_;
  LawReport& report_;
  const SparseLayer& layer_;
  const bool prefill_;
  const CanonicalRows rows_;
  std::vector<Token> tokens_;
  int64_t keys_ = 0;  // of all requests
};

}  // namespace

void judge_sparse(const MetaFacts& m, LawReport& report) {
  const auto sparse = [](const LayerKind& kind) { return sparse_of(kind) != nullptr; };
  const auto kind = std::ranges::find_if(m.model.layers, sparse);
  if (kind != m.model.layers.end()) ChosenKeysJudge(m, *kind, report).run();
}

}  // namespace shadowgraph
