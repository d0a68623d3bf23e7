// Dual-chunk attention: how the keys of each row's last query lie in three parts, and what its new
// keys are multiplied by. Facts: fi.I-107.
#include <algorithm>
#include <string>

#include "attn/dual_chunk.h"
#include "check/laws/judges.h"

namespace shadowgraph {
namespace {

/// The buffer with a role; -1: none has.
int buffer_of(const MetaFacts& m, Role role) {
  for (const BufferInfo& r : m.info.buffers)
    if (r.role == role) return r.buffer;
  return -1;
}

bool has_dual_chunks(const MetaFacts& m) {
  return !m.kinds().empty() && m.kinds()[0].kind->dual_chunk;
}

class ChunkPartJudge {
 public:
  ChunkPartJudge(const MetaFacts& m, LawReport& report) : m_(m), report_(report) {}

  /// A row for each chunk that a request's queries stand in.
  void run() {
    const int32_t len = m_.model.dual_chunk.chunk_len();
    for (int64_t i = 0; i < m_.requests(); ++i) {
      const RequestExtent& e = m_.extent(i);
      for (int64_t first = e.prefix_len, next = 0; first < e.kv_len; first = next) {
        next = std::min<int64_t>(e.kv_len, (first / len + 1) * len);
        const int64_t chunk = (next - 1) / len;
        expect(Role::kIntraLens, next - chunk * len);
        expect(Role::kSuccLens, chunk > 0 ? len : 0);
        expect(Role::kInterLens, chunk > 1 ? (chunk - 1) * len : 0);
        ++row_;
      }
    }
  }

 private:
  /// What is not bound has no key.
  void expect(Role role, int64_t want) {
    const int buffer = buffer_of(m_, role);
    const bool there = row_ < m_.size(buffer);
    const int64_t got = there ? m_.value(buffer, row_) : 0;
    judged("len.chunk_parts");
    if (got == want) return;
    report_.fail("len.chunk_parts", at(there ? m_.buffer(buffer).name : "chunk_parts", row_),
                 number(want), number(got));
  }

  const MetaFacts& m_;
  LawReport& report_;
  int64_t row_ = 0;
};

}  // namespace

void judge_chunk_parts(const MetaFacts& m, LawReport& report) {
  if (has_dual_chunks(m)) ChunkPartJudge(m, report).run();
}

void judge_chunk_factors(const MetaFacts& m, LawReport& report) {
  const int32_t original = m.model.dual_chunk.original_max_position;
  if (!has_dual_chunks(m) || original == 0) return;
  const int buffer = buffer_of(m, Role::kFactors);
  for (int64_t i = 0; i < m.requests(); ++i) {
    const auto want = static_cast<float>(dual_chunk_factor(m.batch.prompt_len(i), original));
    const float got = i < m.size(buffer) ? m.real(buffer, i) : 1;
    judged("len.chunk_factor");
    if (got != want)
      report.fail("len.chunk_factor", at("scaling_factor", i), std::to_string(want),
                  std::to_string(got));
  }
}

}  // namespace shadowgraph
