#include "runtime/pool_state.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "attn/finding_ids.h"
#include "runtime/histories.h"

namespace shadowgraph::pool_state_test {
namespace {

TEST(Config, EveryFindingAtOnce) {
  RuntimeConfig c;
  c.page_size = 3, c.max_requests = 0, c.swa_pages = 1, c.radix = true;
  c.draft = {2, 2, 8}, c.dllm_block = 4;
  EXPECT_EQ(ids(validate(c)), (Ids{"pool.shape page_size", "pool.shape max_requests",
                                   "pool.shape draft.num_draft_tokens", "pool.shape window_left",
                                   "pool.shape radix", "pool.shape draft.num_steps"}));
  c = {};
  c.least_requests = 5;
  EXPECT_EQ(ids(validate(c)), Ids{"pool.shape least_requests"});
  c = {};
  c.num_pages = 31;
  EXPECT_EQ(ids(validate(c)), Ids{"pool.shape num_pages"});
  c.num_pages = 40;
  c.prebuilt = true, c.max_encoder_len = 4;
  EXPECT_EQ(ids(validate(c)), Ids{"pool.shape prebuilt"});
  // A whole prompt has slots in the window's pool too.
  c.max_encoder_len = 0, c.window_left = 2, c.swa_pages = 31;
  EXPECT_EQ(ids(validate(c)), Ids{"pool.shape swa_pages"});
  c.swa_pages = 32;
  EXPECT_TRUE(validate(c).ok());
  c = {};
  c.num_pages = 32;
  EXPECT_TRUE(validate(c).ok());
}

TEST(Owners, AreTheRequestsOfAPageAndARow) {
  RuntimeConfig config = config_of(4);
  config.radix = true;
  const Moment m = moment(config, [](const Moment& at) {
    const Owners o = owners_of(at.state);
    return std::ranges::any_of(o.pages, [](const auto& page) { return page.size() > 1; });
  });
  const Owners o = owners_of(m.state);
  EXPECT_TRUE(o.pages[0].empty());
  for (const PoolRequest& r : m.state.requests) {
    EXPECT_EQ(o.rows[static_cast<size_t>(r.row)], r.id);
    for (int32_t c = 0; c < r.slots_len; ++c) {
      const auto page = static_cast<size_t>(m.state.text(r)[static_cast<size_t>(c)] / 4);
      EXPECT_EQ(std::ranges::count(o.pages[page], r.id), 1);
      EXPECT_TRUE(c < r.shared_len || o.pages[page].size() == 1);
    }
  }
}

}  // namespace
}  // namespace shadowgraph::pool_state_test
