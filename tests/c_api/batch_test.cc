// Batches of C: made by table and key by key, drawn from a caller's choices, and judged.
#include <cstring>
#include <set>

#include "c_api/dl_tensors.h"
#include "core/choices.h"

namespace shadowgraph::c_api::batch_test {
namespace {

/// Frees itself.
struct Batch {
  sg_batch* handle = nullptr;

  Batch() = default;
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  ~Batch() { sg_batch_free(handle); }

  int64_t number(const char* name) const {
    int64_t n = -99;
    EXPECT_EQ(sg_batch_number(handle, name, &n), SG_OK) << name;
    return n;
  }
  template <class T = int32_t>
  std::vector<T> array(const char* name) const {
    DLTensor t;
    EXPECT_EQ(sg_batch_array(handle, name, &t), SG_OK) << name;
    EXPECT_EQ(t.dtype.bits, 8 * sizeof(T)) << name;
    int64_t size = 1;
    for (int i = 0; i < t.ndim; ++i) size *= t.shape[i];
    const auto* first = static_cast<const T*>(t.data);
    return {first, first + size};
  }
};

/// Two requests of pages of 4: 5 keys in pages 2 and 5, 8 keys in pages 3 and 10; the last is new.
struct Requests {
  Tensor<int32_t> indptr{{3}, {0, 5, 13}};
  Tensor<int64_t> keys{{13}, {8, 9, 10, 11, 20, 12, 13, 14, 15, 40, 41, 42, 43}};
  DLTensor indptr_t = indptr.dl(), keys_t = keys.dl();
  sg_batch_params params = SG_BATCH_INIT;

  Requests() {
    params.mode = "decode", params.page_size = 4, params.pool_pages = 16;
    params.key_indptr = &indptr_t, params.keys = &keys_t;
  }
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  Found refused() const {
    sg_batch* batch = nullptr;
    sg_report* report = nullptr;
    EXPECT_EQ(sg_batch_new(&params, &batch, &report), SG_BAD_INPUT);
    EXPECT_EQ(batch, nullptr);
    return taken(report);
  }
};

using Ints = std::vector<int32_t>;

TEST(CBatch, KeysSayWhatTheStepIs) {
  Requests r;
  Batch b;
  ASSERT_EQ(sg_batch_new(&r.params, &b.handle, nullptr), SG_OK) << sg_last_error();
  EXPECT_STREQ(sg_batch_mode(b.handle), "decode");
  EXPECT_STREQ(sg_batch_text(b.handle), "decode, page_size 4, prefix_lens [4, 7], q_lens [1, 1]");
  EXPECT_EQ(b.number("page_size"), 4);
  EXPECT_EQ(b.number("pool_pages"), 16);
  EXPECT_EQ(b.number("requests"), 2);
  EXPECT_EQ(b.number("rows"), 2);
  EXPECT_EQ(b.array("prefix_lens"), (Ints{4, 7}));
  EXPECT_EQ(b.array("q_lens"), (Ints{1, 1}));
  EXPECT_EQ(b.array("kv_lens"), (Ints{5, 8}));
  EXPECT_EQ(b.array("cu_seqlens_q"), (Ints{0, 1, 2}));
  EXPECT_EQ(b.array("key_indptr"), r.indptr.values);
  EXPECT_EQ(b.array("keys"), (Ints{8, 9, 10, 11, 20, 12, 13, 14, 15, 40, 41, 42, 43}));
  EXPECT_EQ(b.array("stored"), (Ints{20, 43}));
  EXPECT_EQ(b.array<int64_t>("out_cache_loc"), (std::vector<int64_t>{20, 43}));
  EXPECT_EQ(b.array<uint8_t>("mask"), std::vector<uint8_t>(13, 1));
  EXPECT_TRUE(b.array<uint8_t>("custom_mask").empty());
  int64_t n = 0;
  DLTensor t;
  EXPECT_EQ(sg_batch_number(b.handle, "pages", &n), SG_USAGE);
  EXPECT_EQ(sg_batch_array(b.handle, "pages", &t), SG_USAGE);
  EXPECT_EQ(sg_batch_array(nullptr, "keys", &t), SG_USAGE);
}

TEST(CBatch, ATableSaysTheSame) {
  Requests r;
  Batch keys, table;
  ASSERT_EQ(sg_batch_new(&r.params, &keys.handle, nullptr), SG_OK);
  Tensor<int16_t> map({2, 9}, {12, 13, 14, 15, 40, 41, 42, 43, 0, 8, 9, 10, 11, 20, 0, 0, 0, 0});
  Tensor<int64_t> rows({2}, {1, 0});
  Tensor<int32_t> lens({3}, {5, 0, 8});
  lens.shape = {2}, lens.strides = {2};
  DLTensor map_t = map.dl(), rows_t = rows.dl(), lens_t = lens.dl();
  sg_batch_params params = SG_BATCH_INIT;
  params.mode = "decode", params.page_size = 4, params.pool_pages = 16;
  params.req_to_token = &map_t, params.req_pool_indices = &rows_t, params.seq_lens = &lens_t;
  ASSERT_EQ(sg_batch_new(&params, &table.handle, nullptr), SG_OK) << sg_last_error();
  for (const char* name : {"prefix_lens", "q_lens", "kv_lens", "keys", "stored"})
    EXPECT_EQ(table.array(name), keys.array(name)) << name;
  DLTensor view;
  ASSERT_EQ(sg_batch_array(table.handle, "req_to_token", &view), SG_OK);
  EXPECT_EQ(std::vector<int64_t>(view.shape, view.shape + view.ndim), map.shape);
  // Lengths count what is said, or what is usual for the mode.
  Batch prefix;
  params.seq_lens_kind = SG_LENS_PREFIX;
  ASSERT_EQ(sg_batch_new(&params, &prefix.handle, nullptr), SG_OK) << sg_last_error();
  EXPECT_EQ(prefix.array("kv_lens"), (Ints{6, 9}));
  EXPECT_EQ(prefix.number("seq_lens_are_prefixes"), 1);
}

TEST(CBatch, WhatIsWrongIsFoundAtOnce) {
  Requests r;
  r.params.page_size = 3;
  r.indptr.values = {1, 5, 4};
  EXPECT_EQ(r.refused(), (Found{"len.indptr_first key_indptr", "len.indptr_monotone key_indptr",
                                "len.total key_indptr", "pool.shape page_size"}));
  Requests extend;
  extend.params.mode = "extend";
  EXPECT_EQ(extend.refused(), Found{"len.batch q_lens"});
  Requests longer;
  Tensor<int32_t> q_lens({2}, {6, 1});
  DLTensor q_lens_t = q_lens.dl();
  longer.params.mode = "extend", longer.params.q_lens = &q_lens_t;
  EXPECT_EQ(longer.refused(), Found{"len.extent keys"});
  longer.params.mode = "decode";
  longer.indptr.values[1] = 6;
  EXPECT_EQ(longer.refused(), Found{"len.q_extent q_lens"});
  Requests large;
  large.keys.values[3] = int64_t{1} << 40;
  EXPECT_EQ(large.refused(), Found{"len.overflow keys"});
  Requests none;
  none.params.keys = nullptr;
  EXPECT_EQ(none.refused(), Found{"input.null keys"});
  Requests nothing;
  nothing.params.keys = nothing.params.key_indptr = nullptr;
  EXPECT_EQ(nothing.refused(), (Found{"input.null req_pool_indices", "input.null req_to_token",
                                      "input.null seq_lens"}));
  Requests real;
  real.keys_t.dtype = {kDLFloat, 64, 1};
  EXPECT_EQ(real.refused(), Found{"input.dtype keys"});
  sg_batch* batch = nullptr;
  Requests unknown;
  unknown.params.mode = "decoding";
  EXPECT_EQ(sg_batch_new(&unknown.params, &batch, nullptr), SG_USAGE);
  EXPECT_NE(std::strstr(sg_last_error(), "draft_decode"), nullptr);
  unknown.params.mode = "prefill";
  EXPECT_EQ(sg_batch_new(&unknown.params, &batch, nullptr), SG_USAGE);
  EXPECT_NE(std::strstr(sg_last_error(), "did you mean extend?"), nullptr);
  EXPECT_EQ(sg_batch_new(&unknown.params, nullptr, nullptr), SG_USAGE);
}

// Choices of a caller.

uint32_t simplest(void*, uint32_t) { return 0; }
uint32_t random_number(void* rng, uint32_t bound) { return static_cast<Rng*>(rng)->below(bound); }

TEST(CDraw, TheSimplestBatchIsOneOfOneToken) {
  Batch b;
  ASSERT_EQ(sg_batch_draw(nullptr, simplest, nullptr, &b.handle, nullptr), SG_OK);
  EXPECT_STREQ(sg_batch_text(b.handle), "decode, page_size 1, prefix_lens [0], q_lens [1]");
}

TEST(CDraw, TheSameChoicesDrawTheSameBatchAndOthersDrawOthers) {
  std::set<std::string> texts, modes;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Rng first(seed), second(seed);
    Batch a, b;
    const char* options = R"({"modes": ["decode", "extend"], "page_sizes": [2, 4], "steps": 6})";
    ASSERT_EQ(sg_batch_draw(options, random_number, &first, &a.handle, nullptr), SG_OK);
    ASSERT_EQ(sg_batch_draw(options, random_number, &second, &b.handle, nullptr), SG_OK);
    EXPECT_STREQ(sg_batch_text(a.handle), sg_batch_text(b.handle));
    if (a.handle == nullptr) continue;  // a history without such a step
    EXPECT_EQ(a.array("keys"), b.array("keys"));
    EXPECT_GE(a.number("page_size"), 2);
    texts.insert(sg_batch_text(a.handle)), modes.insert(sg_batch_mode(a.handle));
  }
  EXPECT_GT(texts.size(), 30u);
  EXPECT_EQ(modes, (std::set<std::string>{"decode", "extend"}));
}

TEST(CDraw, AHistorysLastStepIsTheBatchOfItsChoices) {
  int longest = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Rng first(seed), second(seed);
    const char* options = R"({"modes": ["decode", "extend", "mixed"], "small_requests": 0})";
    Batch last;
    ASSERT_EQ(sg_batch_draw(options, random_number, &first, &last.handle, nullptr), SG_OK);
    sg_history* history = nullptr;
    ASSERT_EQ(sg_history_new(options, random_number, &second, &history, nullptr), SG_OK);
    std::string text;
    int steps = 0;
    for (;; ++steps) {
      Batch step;
      ASSERT_EQ(sg_history_next(history, &step.handle), SG_OK);
      if (step.handle == nullptr) break;
      EXPECT_EQ(sg_check(step.handle, nullptr, 0, nullptr, nullptr), SG_OK) << sg_last_error();
      text = sg_batch_text(step.handle);
    }
    sg_history_free(history);
    EXPECT_EQ(text, sg_batch_text(last.handle));
    longest = std::max(longest, steps);
  }
  EXPECT_GT(longest, 5);
  sg_history_free(nullptr);
  sg_history* history = nullptr;
  EXPECT_EQ(sg_history_new(nullptr, nullptr, nullptr, &history, nullptr), SG_USAGE);
  EXPECT_EQ(sg_history_new("{\"steps\": 0}", simplest, nullptr, &history, nullptr), SG_BAD_INPUT);
  EXPECT_EQ(sg_history_next(nullptr, nullptr), SG_USAGE);
}

TEST(CDraw, ANumberBeyondItsBoundCountsFromZeroAgain) {
  Batch zero, bound;
  const auto of_bound = [](void*, uint32_t n) { return n; };
  ASSERT_EQ(sg_batch_draw(nullptr, simplest, nullptr, &zero.handle, nullptr), SG_OK);
  ASSERT_EQ(sg_batch_draw(nullptr, of_bound, nullptr, &bound.handle, nullptr), SG_OK);
  EXPECT_STREQ(sg_batch_text(zero.handle), sg_batch_text(bound.handle));
}

TEST(CDraw, OptionsThatAreNoneAreFound) {
  const auto refused = [](const char* options) {
    sg_batch* batch = nullptr;
    sg_report* report = nullptr;
    EXPECT_EQ(sg_batch_draw(options, simplest, nullptr, &batch, &report), SG_BAD_INPUT);
    EXPECT_EQ(batch, nullptr);
    return taken(report);
  };
  EXPECT_EQ(refused(R"({"mode": ["decode"], "page_sizes": 4, "steps": 1.5, "prefix_cache": 1})"),
            (Found{"test.options mode", "test.options page_sizes", "test.options prefix_cache",
                   "test.options steps"}));
  EXPECT_EQ(refused(R"({"modes": ["decoding"]})"), Found{"test.options modes"});
  EXPECT_EQ(refused(R"({"steps": 0})"), Found{"test.options steps"});
  EXPECT_EQ(refused("{").size(), 1u);
  sg_batch* batch = nullptr;
  EXPECT_EQ(sg_batch_draw(nullptr, nullptr, nullptr, &batch, nullptr), SG_USAGE);
  EXPECT_EQ(sg_batch_draw(nullptr, simplest, nullptr, nullptr, nullptr), SG_USAGE);
}

/// Metadata of the two requests, right unless a test changes it.
struct Metadata {
  Requests requests;
  Batch batch;
  Tensor<int32_t> lens{{2}, {5, 8}}, table{{2, 2}, {2, 5, 3, 10}};
  Tensor<int64_t> slots{{2}, {20, 43}};
  DLTensor lens_t = lens.dl(), table_t = table.dl(), slots_t = slots.dl();
  sg_role_value values[4] = {SG_ROLE_VALUE_INIT, SG_ROLE_VALUE_INIT, SG_ROLE_VALUE_INIT,
                             SG_ROLE_VALUE_INIT};

  Metadata() {
    EXPECT_EQ(sg_batch_new(&requests.params, &batch.handle, nullptr), SG_OK) << sg_last_error();
    values[0].role = "kv_lens", values[0].values = &lens_t;
    values[1].role = "page_table", values[1].values = &table_t;
    values[2].role = "slots", values[2].values = &slots_t, values[2].name = "slot_mapping";
    values[3].role = "max_seqlen_k", values[3].number = 8;
  }
  Found found(sg_status status, const sg_judge_options* options = nullptr) {
    sg_report* report = nullptr;
    EXPECT_EQ(sg_check(batch.handle, values, 4, options, &report), status) << sg_last_error();
    return taken(report);
  }
};

TEST(CCheck, RightMetadataIsClean) { EXPECT_EQ(Metadata().found(SG_OK), Found{}); }

TEST(CCheck, EachWrongArrayBreaksItsLaw) {
  Metadata all;
  all.lens.values[0] = 4, all.table.values[3] = 11, all.slots.values[0] = 21;
  all.values[3].number = 7;
  EXPECT_EQ(all.found(SG_FINDINGS), (Found{"len.bound max_seqlen_k", "len.kv_extent kv_lens",
                                           "slot.write slot_mapping", "table.slot page_table"}));
  Metadata slots_for_pages;
  slots_for_pages.table.values = {8, 20, 12, 40};
  EXPECT_EQ(slots_for_pages.found(SG_FINDINGS), Found{"table.unit page_table"});
}

TEST(CCheck, TheBatchIsJudgedToo) {
  Metadata m;
  m.requests.keys.values[12] = 20;  // both requests store there
  sg_batch* twice = nullptr;
  ASSERT_EQ(sg_batch_new(&m.requests.params, &twice, nullptr), SG_OK) << sg_last_error();
  sg_report* report = nullptr;
  EXPECT_EQ(sg_check(twice, nullptr, 0, nullptr, &report), SG_FINDINGS);
  const Found found = taken(report);
  EXPECT_NE(std::ranges::find_if(
                found, [](const std::string& f) { return f.starts_with("slot.duplicate"); }),
            found.end());
  sg_batch_free(twice);
}

TEST(CCheck, OptionsSayWhatTheBatchDoesNot) {
  Metadata m;
  Tensor<int32_t> padded({3}, {5, 8, 3}), wide({3, 2}, {2, 5, 3, 10, 0, 0});
  DLTensor padded_t = padded.dl(), wide_t = wide.dl();
  m.values[0].values = &padded_t;
  EXPECT_EQ(m.found(SG_FINDINGS), (Found{"len.padding kv_lens", "trace.shape page_table"}));
  m.values[1].values = &wide_t;
  EXPECT_EQ(m.found(SG_FINDINGS), Found{"len.padding kv_lens"});
  sg_judge_options options = SG_JUDGE_INIT;
  options.pad_kv_most = 3;
  EXPECT_EQ(m.found(SG_OK, &options), Found{});
  options.engine = "no engine";
  EXPECT_EQ(m.found(SG_USAGE, &options), Found{});
  EXPECT_STREQ(sg_last_error(),
               "options.engine is no engine, expected one of sglang, sglang_npu, any");
}

TEST(CCheck, WhatCannotBeJudgedIsBadInput) {
  Metadata unknown;
  unknown.values[0].role = "kv_len";
  EXPECT_EQ(unknown.found(SG_BAD_INPUT), Found{"test.options kv_len"});
  Metadata floats;
  floats.lens_t.dtype.code = kDLFloat;
  EXPECT_EQ(floats.found(SG_BAD_INPUT), Found{"input.dtype kv_lens"});
  Metadata on_gpu;
  on_gpu.table_t.device.device_type = kDLCUDA;
  EXPECT_EQ(on_gpu.found(SG_BAD_INPUT), Found{"input.device page_table"});
  Metadata no_role;
  no_role.values[1].role = nullptr;
  EXPECT_EQ(no_role.found(SG_USAGE), Found{});
  EXPECT_EQ(sg_check(nullptr, nullptr, 0, nullptr, nullptr), SG_USAGE);
}

TEST(CCheck, ElementsOfANewerHeaderAreLarger) {
  struct Newer {
    sg_role_value value;
    int64_t more;
  };
  Metadata m;
  m.slots.values[0] = 21;
  Newer newer[4];
  for (size_t i = 0; i < 4; ++i) {
    newer[i] = {m.values[i], 0};
    newer[i].value.struct_size = sizeof(Newer);
  }
  sg_report* report = nullptr;
  EXPECT_EQ(sg_check(m.batch.handle, &newer[0].value, 4, nullptr, &report), SG_FINDINGS);
  EXPECT_EQ(taken(report), Found{"slot.write slot_mapping"});
}

}  // namespace
}  // namespace shadowgraph::c_api::batch_test
