// Memory that runs out is a status, whichever allocation it is.
#include "allocations.h"
#include "c_api/decode.h"
#include "shadowgraph/attention/attention.h"

namespace shadowgraph::c_api::allocation_test {
namespace {

/// Runs call() with the first, second, ... allocation failing, until it needs fewer; returns how
/// many.
template <class Call>
long fail_every_allocation(sg_status last, const Call& call) {
  for (long n = 0;; ++n) {
    allocations::left = n, allocations::then = allocations::Then::kNoneFails;
    const sg_status status = call();
    const bool failed = allocations::left < 0;
    allocations::left = -1;
    EXPECT_EQ(status, failed ? SG_INTERNAL : last) << n;
    if (!failed) return n;
  }
}

TEST(CAllocation, ACallThatIsRefusedMayRunOutOfMemoryAnywhere) {
  Decode d;
  d.table.values = {99, 1, -1, 0};
  d.q_t.device.device_type = kDLCUDA;
  EXPECT_GT(fail_every_allocation(SG_BAD_INPUT,
                                  [&] {
                                    sg_report* report = nullptr;
                                    const sg_status status = d.run(&report);
                                    sg_report_free(report);
                                    return status;
                                  }),
            3);
  EXPECT_EQ(d.out.values, std::vector<float>(d.out.values.size(), 99));
}

TEST(CAllocation, ACallMayRunOutOfMemoryAnywhere) {
  Decode d;
  fail_every_allocation(SG_OK, [&] { return d.run(); });
  EXPECT_NE(d.out.values[0], 99);
}

TEST(CAllocation, ACallAllocatesWhatTheEnginesDoesAndNothingElse) {
  Decode d;
  d.params.num_threads = 1;
  ASSERT_EQ(d.run(), SG_OK);
  const long before = allocations::count;
  ASSERT_EQ(d.run(), SG_OK);
  const long in_c = allocations::count - before;
  PagedAttention call;
  call.q = TensorView(d.q.values.data(), DType::kF32, {2, 4, 8});
  call.cache = KvCache::nhd(TensorView(d.k.values.data(), DType::kF32, {4, 2, 2, 8}),
                            TensorView(d.v.values.data(), DType::kF32, {4, 2, 2, 8}));
  call.pages = PageTable::dense(d.table.values, 2, d.lens.values);
  call.params.num_qo_heads = 4, call.params.num_kv_heads = 2, call.params.sm_scale = 0.5f;
  call.params.head_dim_qk = call.params.head_dim_vo = 8;
  call.out = TensorView(d.out.values.data(), DType::kF32, {2, 4, 8});
  call.lse = NaturalLse(TensorView(d.lse.values.data(), DType::kF32, {2, 4}));
  call.options.num_threads = 1;
  const long middle = allocations::count;
  ASSERT_TRUE(attention_with_kvcache(call).ok());
  EXPECT_EQ(in_c, allocations::count - middle);
}

TEST(CAllocation, ABatchMayRunOutOfMemoryAnywhere) {
  Tensor<int32_t> indptr({3}, {0, 5, 9}), keys({9}, {8, 9, 10, 11, 20, 12, 13, 14, 15});
  DLTensor indptr_t = indptr.dl(), keys_t = keys.dl();
  sg_batch_params params = SG_BATCH_INIT;
  params.mode = "decode", params.page_size = 4;
  params.key_indptr = &indptr_t, params.keys = &keys_t;
  sg_batch* batch = nullptr;
  fail_every_allocation(SG_OK, [&] {
    sg_batch_free(batch);
    const sg_status status = sg_batch_new(&params, &batch, nullptr);
    EXPECT_EQ(status == SG_OK, batch != nullptr);
    return status;
  });
  sg_batch_free(batch);
}

TEST(CAllocation, AStepMayRunOutOfMemoryAnywhere) {
  Tensor<int32_t> pages({1, 2}, {2, 5}), row({1}, 0), lens({1}, 5), kv_lens({1}, 5);
  DLTensor pages_t = pages.dl(), row_t = row.dl(), lens_t = lens.dl(), kv_lens_t = kv_lens.dl();
  fail_every_allocation(SG_OK, [&] {
    sg_step* step = nullptr;
    const char* text = nullptr;
    sg_status status = sg_step_new("laws", "decode", "eager", &step);
    const auto go_on = [&](sg_status next) {
      if (status == SG_OK) status = next;
    };
    go_on(step == nullptr ? status : sg_step_config(step, "page_size", 4));
    go_on(step == nullptr ? status : sg_step_pages(step, "req_to_token", &pages_t));
    go_on(step == nullptr ? status : sg_step_input(step, "req_pool_indices", &row_t));
    go_on(step == nullptr ? status : sg_step_input(step, "seq_lens", &lens_t));
    go_on(step == nullptr ? status : sg_step_field(step, "kv_lens", &kv_lens_t));
    go_on(step == nullptr ? status : sg_step_line(step, &text, nullptr));
    sg_step_free(step);
    return status;
  });
}

// Not json and sarif: nlohmann-json allocates where it destroys.
TEST(CAllocation, ATextMayRunOutOfMemoryAnywhere) {
  for (const char* format : {"text", "junit", "github", "html"}) {
    Decode d;
    d.table.values[0] = 99;
    fail_every_allocation(SG_OK, [&] {
      sg_report* report = nullptr;
      // The report says so if memory ran out before.
      const bool refused = d.run(&report) == SG_BAD_INPUT;
      const bool written = refused && sg_report_text(report, format) != nullptr;
      sg_report_free(report);
      return written ? sg_status{SG_OK} : sg_status{SG_INTERNAL};
    });
  }
}

}  // namespace
}  // namespace shadowgraph::c_api::allocation_test
