// The page table of a draft's branches has a column for each token so far and one more. SGLang's
// FlashAttention scattered the pages of all steps into it, so rows overflowed into each other and
// behind the table: NaN logits later (sglang#27360). topk 8, pages of 2 tokens, 8 steps.
#include <cstdio>

#include "shadowgraph/testing.h"

using namespace shadowgraph;

namespace {

constexpr int32_t kTopk = 8, kPageSize = 2, kSteps = 8;

// The builder: the pages of each branch's slots, each once. Mended, of this step's slots alone.
void build(const ForwardBatch& batch, bool mended, int32_t columns, int32_t* page_table) {
  for (int64_t row = 0; row < batch.size() * kTopk; ++row) {
    const auto slots = batch.out_cache_loc.subspan(static_cast<size_t>(row * kSteps), kSteps);
    int32_t* to = page_table + row * columns;
    for (const int64_t slot : slots.first(mended ? batch.spec.step + 1 : kSteps)) {
      if (slot != slots[0] && slot / kPageSize != *to) ++to;
      *to = static_cast<int32_t>(slot / kPageSize);
    }
  }
}

// A branch's own keys: from the prefix's last, partial page on, of which each branch has a copy.
testing::Truth branches(testing::Truth truth, int32_t tokens) {
  for (size_t r = 0; r < truth.keys.size(); ++r) {
    const int32_t prefix = truth.kv_lens[r] - tokens, copied = prefix % kPageSize;
    auto& keys = truth.keys[r];
    keys.erase(keys.begin(), keys.begin() + prefix - copied);
    for (int32_t i = 0; i < copied; ++i) keys[i] = keys[copied] - copied + i;
    truth.kv_lens[r] = copied + tokens;
  }
  return truth;
}

Status test(bool mended) {
  testing::Options options;
  options.modes = {ForwardMode::kDraftDecode}, options.page_sizes = {kPageSize};
  options.topk = kTopk, options.num_steps = kSteps, options.num_draft_tokens = kSteps + 1;
  return testing::check(options, [&](testing::Steps& steps) {
    while (const testing::Case* c = steps.next()) {
      const int32_t tokens = c->batch.spec.step + 1, columns = tokens + 1;
      testing::Shadowed<int32_t> table(steps, "page_table", c->truth.rows() * columns);
      build(c->batch, mended, columns, table.data());
      const testing::Truth own = branches(c->truth, tokens);
      steps.expect(check_page_table(table, columns, kPageSize, c->pool_pages, own));
    }
  });
}

}  // namespace

int main() {
  const Status before = test(false), after = test(true);
  std::printf("before:\n%s\nafter: %s\n", before.to_string().c_str(), after.to_string().c_str());
  return !before.ok() && before.findings()[0].id == "mem.red_zone" && after.ok() ? 0 : 1;
}
