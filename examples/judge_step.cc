// Judges one step: a batch of two decodes, and the arrays that an engine made of it. The engine
// wrote slots into its table where ids of pages belong; a GPU would read other requests' keys.
#include <cstdio>
#include <vector>

#include "shadowgraph/judge.h"

using namespace shadowgraph;

int main() {
  constexpr int32_t kPageSize = 4, kWidth = 8;
  // The scheduler knows 5 tokens in pages 2 and 5, 8 tokens in pages 3 and 10.
  const std::vector<int32_t> req_to_token = {8,  9,  10, 11, 20, 21, 22, 23,  //
                                             12, 13, 14, 15, 40, 41, 42, 43};
  const std::vector<int32_t> req_pool_indices = {0, 1}, seq_lens = {5, 8};
  ForwardBatch batch;
  batch.mode = ForwardMode::kDecode;
  batch.req_pool_indices = req_pool_indices, batch.seq_lens = seq_lens;
  batch.req_to_token = {req_to_token, kWidth};

  // The engine made these arrays of it, with a row of padding behind the two.
  const std::vector<int32_t> lens = {5, 8, 0};
  const std::vector<int64_t> slot_mapping = {20, 43, -1};
  const auto judge = [&](const std::vector<int32_t>& table) {
    const int64_t rows = 3, columns = 2;
    const testing::RoleValue values[] = {
        {.role = "kv_lens", .values = ConstTensorView(lens.data(), DType::kI32, {rows})},
        {.role = "page_table",
         .values = ConstTensorView(table.data(), DType::kI32, {rows, columns})},
        {.role = "slots", .values = ConstTensorView(slot_mapping.data(), DType::kI64, {rows})},
        {.role = "max_seqlen_k", .number = 8}};
    Status status = testing::judge(batch, values, {.page_size = kPageSize, .pool_pages = 64});
    std::printf("%s\n", status.to_string().c_str());
    return status;
  };
  const bool right = judge({2, 5, 3, 10, 0, 0}).ok();
  const Status slots = judge({8, 20, 12, 40, 0, 0});
  return right && !slots.ok() && slots.findings()[0].id == "table.unit" ? 0 : 1;
}
