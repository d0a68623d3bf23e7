#include "testing/steps.h"

#include <algorithm>

#include "testing/generate.h"

namespace shadowgraph::testing {
namespace {

std::string list(const char* name, std::span<const int32_t> values) {
  std::string s;
  for (const int32_t v : values) s += (s.empty() ? "" : ", ") + std::to_string(v);
  return ", " + std::string(name) + " [" + s + "]";
}

}  // namespace

Steps::State::State(const Options& options, Choices& choices)
    : options_(options), choices_(choices) {
  if (!small_modes(options).empty() && choices.below(kKindsOfHistory) == 0) return;
  scheduler_.emplace(random_config(options, choices));
  left_ = choices.between(1, options.steps);
}

/// False: there is no other that is to be seen.
bool Steps::State::make_next() {
  while (left_-- > 0) {
    if (!scheduler_) {
      SmallBatch small = small_batch(options_, choices_);
      step_ = std::move(small.step);
      case_.page_size = small.page_size;
      case_.pool_pages = small.pool_pages;
      case_.window_pages = step_.full_to_swa.empty() ? 0 : small.pool_pages;
    } else {
      step_ = scheduler_->next(choices_);
      const RuntimeConfig& config = scheduler_->config();
      case_.page_size = config.page_size;
      case_.pool_pages = config.num_pages + 1;
      case_.window_pages = config.swa_pages > 0 ? config.swa_pages + 1 : 0;
    }
    if (std::ranges::find(options_.modes, step_.mode) != options_.modes.end()) return true;
  }
  return false;
}

const Case* Steps::State::next() {
  for (ShadowedMemory* array : arrays) findings.add(array->red_zones());
  if (!findings.ok() || !make_next()) return nullptr;
  for (ShadowedMemory* array : arrays) array->begin_step();
  case_.batch = step_.batch();
  case_.truth = truth_of(case_.batch);
  shown.push_back(step_.mode);
  return &case_;
}

std::string Steps::State::to_string() const {
  std::vector<int32_t> prefix_lens, q_lens;
  for (int64_t i = 0; i < case_.batch.size(); ++i) {
    prefix_lens.push_back(case_.batch.extent(i).prefix_len);
    q_lens.push_back(case_.batch.extent(i).q_len);
  }
  return std::string(name_of(step_.mode)) + ", page_size " + std::to_string(case_.page_size) +
         list("prefix_lens", prefix_lens) + list("q_lens", q_lens);
}

const Case* Steps::next() { return state_.next(); }

void Steps::expect(Status findings) { state_.findings.add(std::move(findings)); }

}  // namespace shadowgraph::testing
