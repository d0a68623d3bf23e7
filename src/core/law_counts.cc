#include "core/law_counts.h"

#include <utility>

namespace shadowgraph {
namespace {

thread_local LawCounts* counts_of_thread = nullptr;

}  // namespace

void judged(LawId law, int64_t times) {
  if (counts_of_thread != nullptr) counts_of_thread->add(law, times);
}

CountsJudgements::CountsJudgements(LawCounts* counts)
    : before_(std::exchange(counts_of_thread, counts)) {}
CountsJudgements::~CountsJudgements() { counts_of_thread = before_; }

}  // namespace shadowgraph
