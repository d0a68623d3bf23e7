// Planted faults: each in a legal moment of a history, and found by its law.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include "attn/finding_ids.h"
#include "core/laws.h"
#include "runtime/histories.h"

namespace shadowgraph::check_pool_test {
namespace {

using Fault = std::function<void(Moment&)>;

void drop_cached(Moment& m, int32_t slot) {
  std::erase_if(m.state.cached, [&](const CachedSlot& c) { return c.slot == slot; });
}

/// Laws that a moment breaks once the fault is in it, each once.
Ids laws_of(Moment m, const Fault& fault) {
  const auto judge = [](const Moment& at) {
    Status status = check_pool(at.state);
    status.add(check_step(at.step, at.state));
    return status;
  };
  EXPECT_TRUE(judge(m).ok()) << judge(m).to_string();
  fault(m);
  std::set<std::string> laws;
  const Status status = judge(m);
  for (const Finding& f : status.findings()) laws.insert(f.id);
  return {laws.begin(), laws.end()};
}

/// In the pools' table, and in the step's copy of it.
int32_t& slot(Moment& m, size_t request, int32_t column) {
  const PoolRequest& r = m.state.requests[request];
  return m.state.req_to_token[static_cast<size_t>(r.row * m.state.width + r.encoder_len + column)];
}
void same_tables(Moment& m) {
  m.step.req_to_token = m.state.req_to_token;
  m.step.full_to_swa = m.state.full_to_swa;
}

bool two_decode(const Moment& m) {
  return m.step.mode == ForwardMode::kDecode && m.step.requests.size() > 1 &&
         std::ranges::all_of(m.state.requests, [](const PoolRequest& r) { return r.kv_len > 8; }) &&
         std::find(m.state.taken.begin() + 1, m.state.taken.end(), false) != m.state.taken.end();
}
Moment decode() { return moment(config_of(4), two_decode); }
Moment draft() {
  return moment(drafting(4, {2, 3, 6}), [](const Moment& m) {
    return m.step.mode == ForwardMode::kDraftDecode && m.step.draft_step == 0 &&
           m.state.find(m.step.requests[0])->kv_len % 4 == 2;
  });
}
Moment verify() {
  return moment(drafting(4, {2, 3, 6}), [](const Moment& m) {
    return m.step.mode == ForwardMode::kTargetVerify && m.step.seq_lens[0] > 2;
  });
}

TEST(CheckPool, FindsSizesThatDoNotFit) {
  EXPECT_EQ(laws_of(decode(), [](Moment& m) { m.state.config.page_size = 3; })[0], "pool.shape");
  EXPECT_EQ(laws_of(draft(), [](Moment& m) { m.state.config.max_context_len += 1; })[0],
            "pool.shape");
}

TEST(CheckPool, FindsARowOfTwoRequests) {
  EXPECT_EQ(
      laws_of(decode(), [](Moment& m) { m.state.requests[1].row = m.state.requests[0].row; })[0],
      "pool.row");
  EXPECT_EQ(laws_of(decode(), [](Moment& m) { m.state.requests[1].row = 0; })[0], "pool.row");
  EXPECT_EQ(laws_of(decode(), [](Moment& m) { m.state.req_to_token[3] = 9, same_tables(m); }),
            Ids{"pool.row"});
}

TEST(CheckPool, FindsASlotThatIsNotAllocated) {
  EXPECT_EQ(laws_of(decode(), [](Moment& m) { slot(m, 0, 4) = 0, same_tables(m); }),
            (Ids{"pool.page", "pool.slot"}));
  EXPECT_EQ(
      laws_of(decode(),
              [](Moment& m) { m.state.taken[static_cast<size_t>(slot(m, 1, 5) / 4)] = false; }),
      Ids{"pool.slot"});
  EXPECT_EQ(laws_of(decode(), [](Moment& m) { slot(m, 0, 4) = 1 << 20, same_tables(m); }),
            (Ids{"pool.page", "pool.slot"}));
  EXPECT_EQ(
      laws_of(decode(),
              [](Moment& m) { m.state.requests[0].slots_len = m.state.requests[0].kv_len - 1; })[0],
      "pool.slot");
}

TEST(CheckPool, FindsATokenAtAnotherOffset) {
  EXPECT_EQ(
      laws_of(decode(), [](Moment& m) { std::swap(slot(m, 0, 5), slot(m, 0, 6)), same_tables(m); }),
      Ids{"pool.page"});
  EXPECT_EQ(laws_of(decode(), [](Moment& m) { slot(m, 0, 5) = slot(m, 0, 1), same_tables(m); }),
            Ids{"pool.page"});
}

TEST(CheckPool, FindsAPageOfTwoRequests) {
  const auto steal = [](Moment& m) {
    for (int32_t c = 0; c < 4; ++c) slot(m, 0, c) = slot(m, 1, c);
    same_tables(m);
  };
  EXPECT_EQ(laws_of(decode(), steal), (Ids{"pool.leak", "pool.shared"}));
  const auto twice = [](Moment& m) {
    for (int32_t c = 0; c < 4; ++c) slot(m, 0, c) = slot(m, 0, c + 4);
    same_tables(m);
  };
  EXPECT_EQ(laws_of(decode(), twice), (Ids{"pool.leak", "pool.shared"}));
}

TEST(CheckPool, FindsASharedPageThatTheCacheHasNot) {
  RuntimeConfig config = config_of(4);
  config.radix = true;
  const auto shares = [](const Moment& m) {
    return m.state.requests.size() > 1 && m.state.requests[0].shared_len > 4 &&
           m.state.requests[1].slots_len > 4 && m.state.requests[1].shared_len == 0;
  };
  const Moment m = moment(config, shares);
  EXPECT_EQ(laws_of(m, [](Moment& at) { drop_cached(at, slot(at, 0, 0)); }), Ids{});
  EXPECT_EQ(laws_of(m,
                    [](Moment& at) {
                      for (int32_t c = 0; c < 4; ++c) drop_cached(at, slot(at, 0, c));
                    }),
            Ids{"pool.shared"});
  EXPECT_EQ(laws_of(m, [](Moment& at) { at.state.requests[0].shared_len -= 4; }),
            Ids{"pool.shared"});
  EXPECT_EQ(laws_of(m, [](Moment& at) { at.state.cached.push_back(at.state.cached[0]); }),
            Ids{"pool.shared"});
}

TEST(CheckPool, FindsAPageThatNobodyHas) {
  const auto leak = [](Moment& m) {
    *std::find(m.state.taken.begin() + 1, m.state.taken.end(), false) = true;
  };
  EXPECT_EQ(laws_of(decode(), leak), Ids{"pool.leak"});
}

TEST(CheckPool, FindsRowsAndStatesThatNobodyHas) {
  const auto row = [](Moment& m) { m.state.free_rows.pop_back(); };
  const auto shorter = [](const Moment& m) { return !m.state.free_rows.empty(); };
  EXPECT_EQ(laws_of(moment(config_of(4), shorter), row), Ids{"pool.leak"});
  EXPECT_EQ(
      laws_of(decode(), [](Moment& m) { m.state.free_rows.push_back(m.state.requests[0].row); }),
      Ids{"pool.leak"});
  RuntimeConfig config = config_of(4);
  config.state_slots = 5;
  const auto states = [](const Moment& m) { return !m.state.free_states.empty(); };
  EXPECT_EQ(laws_of(moment(config, states), [](Moment& m) { m.state.free_states.pop_back(); }),
            Ids{"pool.leak"});
}

TEST(CheckPool, FindsAWindowThatIsWrong) {
  const Moment m = moment(with_window(config_of(4)), [](const Moment& at) {
    return std::ranges::any_of(at.state.requests,
                               [](const PoolRequest& r) { return r.evicted_len > 4; }) &&
           at.state.requests[0].evicted_len > 4 && at.state.requests.size() > 1 &&
           std::ranges::count(at.state.swa_taken, false) > 1;
  });
  const auto planted = [&](const std::function<void(Moment&, int64_t*)>& fault) {
    return laws_of(m, [&](Moment& at) {
      fault(at, at.state.full_to_swa.data());
      same_tables(at);
    });
  };
  const auto kept = [](Moment& at) {
    return static_cast<size_t>(slot(at, 0, at.state.requests[0].evicted_len));
  };
  EXPECT_EQ(planted([&](Moment& at, int64_t* map) { map[slot(at, 0, 0)] = map[kept(at)]; }),
            Ids{"pool.window"});
  EXPECT_EQ(planted([&](Moment& at, int64_t* map) { map[kept(at)] = 0; }), Ids{"pool.window"});
  EXPECT_EQ(planted([&](Moment& at, int64_t* map) { std::swap(map[kept(at)], map[kept(at) + 1]); }),
            Ids{"pool.window"});
  EXPECT_EQ(planted([&](Moment& at, int64_t*) { at.state.full_to_swa.back() = 0; }),
            Ids{"pool.window"});
  EXPECT_EQ(planted([&](Moment& at, int64_t*) { at.state.config.window_left += 4; })[0],
            "pool.window");
  EXPECT_EQ(planted([&](Moment& at, int64_t*) {
              *std::find(at.state.swa_taken.begin() + 1, at.state.swa_taken.end(), false) = true;
            }),
            Ids{"pool.leak"});
}

TEST(CheckStep, FindsWhatIsNotTheRequests) {
  EXPECT_EQ(
      laws_of(decode(), [](Moment& m) { std::swap(m.step.requests[0], m.step.requests[1]); })[0],
      "step.extent");
  EXPECT_EQ(
      laws_of(decode(),
              [](Moment& m) { std::swap(m.step.req_pool_indices[0], m.step.req_pool_indices[1]); }),
      Ids{"step.request"});
  EXPECT_EQ(laws_of(decode(), [](Moment& m) { m.step.requests[1] = m.step.requests[0]; })[0],
            "step.request");
  EXPECT_EQ(laws_of(decode(), [](Moment& m) { m.step.req_to_token[1] = 7; }), Ids{"step.request"});
}

TEST(CheckStep, FindsTheOtherSeqLensKind) {
  const auto other = [](Moment& m) { m.step.seq_lens_kind = SeqLensKind::kPrefix; };
  EXPECT_EQ(laws_of(decode(), other), Ids{"step.extent"});
  const Moment v2 = moment(drafting(4, {2, 3, 6}), [](const Moment& m) {
    return m.step.mode == ForwardMode::kDraftExtendV2 && m.step.seq_lens[0] > 8 &&
           m.step.seq_lens_kind == SeqLensKind::kFull;
  });
  EXPECT_EQ(laws_of(v2, other), Ids{"step.extent"});
  EXPECT_EQ(laws_of(v2, [](Moment& m) { m.step.seq_lens[0] -= 1; }), Ids{"step.extent"});
}

TEST(CheckStep, FindsTokensElsewhere) {
  EXPECT_EQ(laws_of(decode(), [](Moment& m) { m.step.out_cache_loc[0] -= 1; }), Ids{"step.slots"});
  EXPECT_EQ(laws_of(decode(), [](Moment& m) { m.step.out_cache_loc[1] = m.step.out_cache_loc[0]; }),
            Ids{"step.slots"});
  EXPECT_EQ(laws_of(decode(), [](Moment& m) { m.step.out_cache_loc.clear(); }), Ids{"step.slots"});
  EXPECT_EQ(laws_of(decode(), [](Moment& m) { m.step.positions[1] += 1; }), Ids{"step.positions"});
  EXPECT_EQ(laws_of(verify(), [](Moment& m) { m.step.positions[2] += 1; }), Ids{"step.positions"});
  EXPECT_EQ(laws_of(draft(), [](Moment& m) { m.step.positions[1] += 1; }), Ids{"step.positions"});
}

TEST(CheckStep, FindsAPrebuiltOrSplitPromptThatIsElsewhere) {
  RuntimeConfig prebuilt = config_of(4);
  prebuilt.prebuilt = true;
  for (const ForwardMode mode : {ForwardMode::kPrebuilt, ForwardMode::kSplitPrefill}) {
    const RuntimeConfig config = mode == ForwardMode::kPrebuilt ? prebuilt : config_of(4);
    const Moment m = moment(config, [mode](const Moment& at) {
      return at.step.mode == mode && at.step.extend_lens[0] > 2;
    });
    const auto expect = [&](const Fault& fault, const char* law) {
      EXPECT_EQ(laws_of(m, fault), Ids{law}) << name_of(mode);
    };
    expect([](Moment& at) { std::swap(at.step.out_cache_loc[0], at.step.out_cache_loc[1]); },
           "step.slots");
    expect([](Moment& at) { at.step.out_cache_loc[1] = at.step.out_cache_loc[0]; }, "step.slots");
    // Taken for what is stored already.
    expect(
        [](Moment& at) {
          at.step.seq_lens_kind = SeqLensKind::kPrefix;
          at.step.orig_seq_lens.clear();  // they would be too short
        },
        "step.extent");
    expect(
        [](Moment& at) {
          ++std::ranges::find(at.state.requests, at.step.requests[0], &PoolRequest::id)->kv_len;
        },
        "step.extent");
    expect([](Moment& at) { at.step.extend_lens.clear(); }, "len.batch");
    expect([](Moment& at) { at.step.positions[1] = 0; }, "step.positions");
  }
}

TEST(CheckStep, FindsABranchThatIsNotOnItsPages) {
  EXPECT_EQ(laws_of(draft(), [](Moment& m) { m.step.copies.erase(m.step.copies.begin()); }),
            Ids{"step.draft"});
  EXPECT_EQ(laws_of(draft(), [](Moment& m) { m.step.copies[0].to += 1; }), (Ids{"step.draft"}));
  EXPECT_EQ(laws_of(draft(),
                    [](Moment& m) {
                      std::copy_n(m.step.out_cache_loc.begin(), 3,
                                  m.step.out_cache_loc.begin() + 3);
                    }),
            (Ids{"step.draft", "step.slots"}));
  // One after the other, as with pages of one token.
  EXPECT_EQ(laws_of(draft(),
                    [](Moment& m) {
                      const auto text = m.state.text(*m.state.find(m.step.requests[0]));
                      for (size_t n = 0; n < 6; ++n)
                        m.step.out_cache_loc[n] = text[static_cast<size_t>(m.step.seq_lens[0]) + n];
                    })[0],
            "step.draft");
}

TEST(CheckStep, FindsATreeThatIsNone) {
  const auto bit = [](const Moment& m, size_t t, size_t u) {
    const auto prefix = static_cast<size_t>(m.step.seq_lens[0]);
    return t * (prefix + 6) + prefix + u;
  };
  const auto planted = [&](size_t t, size_t u, uint8_t value) {
    return laws_of(verify(), [&](Moment& m) { m.step.custom_mask[bit(m, t, u)] = value; });
  };
  EXPECT_EQ(planted(3, 3, 0)[0], "step.mask");
  EXPECT_EQ(planted(3, 4, 1)[0], "step.mask");
  EXPECT_EQ(planted(5, 0, 0)[0], "step.mask");
  EXPECT_EQ(laws_of(verify(), [&](Moment& m) { m.step.custom_mask[bit(m, 2, 0) - 1] = 0; })[0],
            "step.mask");
  EXPECT_EQ(laws_of(verify(), [](Moment& m) { m.step.custom_mask.clear(); }), Ids{"step.mask"});
}

TEST(CheckStep, FindsASecondRoot) {
  const auto bit = [](Moment& m, size_t t, size_t u) -> uint8_t& {
    const auto prefix = static_cast<size_t>(m.step.seq_lens[0]);
    return m.step.custom_mask[t * (prefix + 6) + prefix + u];
  };
  // Token 2 is a child of the root, and nobody's parent.
  const Moment m = moment(drafting(4, {2, 3, 6}), [&](Moment at) {
    if (at.step.mode != ForwardMode::kTargetVerify || bit(at, 2, 1) != 0) return false;
    int seen = 0;
    for (size_t t = 3; t < 6; ++t) seen += bit(at, t, 2);
    return seen == 0;
  });
  EXPECT_EQ(laws_of(m, [&](Moment& at) { bit(at, 2, 0) = 0; }),
            (Ids{"step.mask", "step.positions"}));
}

TEST(CheckStep, FindsADraftThatSeesAnotherBranch) {
  // Token 3 is a child of 2, a sibling of 1.
  const auto row = [](Moment& m) {
    const auto prefix = static_cast<size_t>(m.step.seq_lens[0]);
    return m.step.custom_mask.begin() + static_cast<std::ptrdiff_t>(3 * (prefix + 6) + prefix);
  };
  const Moment m = moment(drafting(4, {2, 3, 6}), [&](Moment at) {
    return at.step.mode == ForwardMode::kTargetVerify && row(at)[2] == 1 && row(at)[1] == 0;
  });
  EXPECT_EQ(laws_of(m, [&](Moment& at) { row(at)[1] = 1; }), (Ids{"step.mask", "step.positions"}));
}

/// A verify of at least two requests, whose first tree is no chain where there are branches.
Moment linked(const DraftShape& shape) {
  RuntimeConfig config = drafting(4, shape);
  config.state_slots = 5;
  return moment(config, [&](const Moment& m) {
    const auto& sibling = m.step.retrieve_next_sibling;
    return m.step.mode == ForwardMode::kTargetVerify && m.step.requests.size() > 1 &&
           (shape.topk == 1 || *std::max_element(sibling.begin(), sibling.begin() + 6) > 0);
  });
}

TEST(CheckStep, FindsLinksThatMakeNoTree) {
  for (const DraftShape& shape : {DraftShape{2, 3, 6}, DraftShape{1, 5, 6}}) {
    const auto planted = [&](size_t token, std::vector<int32_t> Step::*links, int32_t value) {
      return laws_of(linked(shape), [&](Moment& m) { (m.step.*links)[token] = value; });
    };
    const auto next = &Step::retrieve_next_token, sibling = &Step::retrieve_next_sibling;
    for (const int32_t value : {6, -2, 0}) EXPECT_EQ(planted(0, next, value), Ids{"step.links"});
    EXPECT_EQ(planted(5, next, 0), Ids{"step.links"});     // round again
    EXPECT_EQ(planted(5, sibling, 5), Ids{"step.links"});  // of itself
    EXPECT_EQ(planted(0, next, -1), Ids{"step.links"});
    EXPECT_EQ(planted(6, sibling, 1), Ids{"step.links"});  // of the second root
  }
}

TEST(CheckStep, FindsLinksOfAnotherTree) {
  const auto chain = [](Moment& m) {
    for (int32_t t = 0; t < 6; ++t) {
      m.step.retrieve_next_token[static_cast<size_t>(t)] = t < 5 ? t + 1 : -1;
      m.step.retrieve_next_sibling[static_cast<size_t>(t)] = -1;
    }
  };
  EXPECT_EQ(laws_of(linked({2, 3, 6}), chain), Ids{"step.links"});
  EXPECT_EQ(laws_of(linked({1, 5, 6}), chain), Ids{});
  const auto star = [](Moment& m) {
    for (int32_t t = 0; t < 6; ++t) {
      m.step.retrieve_next_token[static_cast<size_t>(t) + 6] = t == 0 ? 1 : -1;
      m.step.retrieve_next_sibling[static_cast<size_t>(t) + 6] = t > 0 && t < 5 ? t + 1 : -1;
    }
  };
  Moment m = linked({1, 5, 6});
  star(m);
  const Status status = check_step(m.step, m.state);
  ASSERT_EQ(status.findings().size(), 4U) << status.to_string();
  const Finding& first = status.findings()[0];
  EXPECT_EQ(first.id, "step.links");
  EXPECT_EQ(first.where, at("retrieve_next_token", 1, 2));
  EXPECT_EQ(first.expected, "a child of 1");
  EXPECT_EQ(first.got, "a child of 0");
}

TEST(CheckStep, FindsATreeWithoutLinksThatALayerReads) {
  const auto next = [](Moment& m) { m.step.retrieve_next_token.clear(); };
  const auto sibling = [](Moment& m) { m.step.retrieve_next_sibling.clear(); };
  const auto both = [&](Moment& m) { next(m), sibling(m); };
  for (const Fault& fault : {Fault(next), Fault(sibling), Fault(both)})
    EXPECT_EQ(laws_of(linked({2, 3, 6}), fault), Ids{"step.links"});
  EXPECT_EQ(laws_of(linked({1, 5, 6}), both), Ids{});
  const auto stateless = [](Moment& m) {
    m.step.retrieve_next_token.assign(m.step.positions.size(), -1);
  };
  EXPECT_EQ(laws_of(verify(), stateless), Ids{"step.links"});
}

TEST(CheckStep, FindsAnEncoderThatIsNotStored) {
  RuntimeConfig config = config_of(1);
  config.max_encoder_len = 8;
  const Moment m = moment(config, [](const Moment& at) {
    return at.step.encoder_out_cache_loc.size() > 4 && at.step.requests.size() > 1;
  });
  EXPECT_EQ(laws_of(m, [](Moment& at) { at.step.encoder_out_cache_loc.pop_back(); }),
            Ids{"len.total"});
  EXPECT_EQ(laws_of(m, [](Moment& at) { at.step.encoder_out_cache_loc.clear(); }),
            Ids{"step.encoder"});
  EXPECT_EQ(laws_of(m, [](Moment& at) { at.step.encoder_out_cache_loc[1] += 1; }),
            Ids{"step.encoder"});
  EXPECT_EQ(
      laws_of(m, [](Moment& at) { at.step.encoder_lens[0] -= 1, at.step.encoder_lens[1] += 1; }),
      Ids{"step.encoder"});
}

TEST(CheckStep, FindsACopyOverWhatIsStored) {
  EXPECT_EQ(laws_of(draft(),
                    [](Moment& m) {
                      const auto text = m.state.text(*m.state.find(m.step.requests[0]));
                      m.step.copies.push_back({text[1], text[0]});
                    }),
            Ids{"step.copies"});
}

}  // namespace
}  // namespace shadowgraph::check_pool_test
