// SGLang's cross-attention took request 0's encoder length for every request of a batch: their
// text was read from where the encoder's tokens lie, and a quarter of 128 outputs was garbled
// (sglang#25045). Three decodes, whose encoders have 3, 5 and 4 tokens.
#include <cstdio>
#include <numeric>
#include <vector>

#include "shadowgraph/testing.h"

using namespace shadowgraph;

namespace {

constexpr int32_t kWidth = 8, kText = 2;

struct Metadata {
  std::vector<int32_t> encoder_lens, page_table;  // a page is a token
};

// The builder: each row of the table begins behind the request's encoder tokens.
Metadata build(const ForwardBatch& batch, bool mended) {
  Metadata m;
  for (size_t i = 0; i < batch.seq_lens.size(); ++i) {
    const int32_t encoder = batch.encoder_lens[mended ? i : 0];
    m.encoder_lens.push_back(encoder);
    const auto row = batch.req_to_token.row(batch.req_pool_indices[i]);
    for (int32_t c = 0; c < kText; ++c)
      m.page_table.push_back(row[static_cast<size_t>(encoder + c)]);
  }
  return m;
}

Status check(const Metadata& m, const ForwardBatch& batch) {
  const auto cross = testing::truth_of(batch, testing::Pool::kEncoder);
  const auto text = testing::truth_of(batch);
  Status status = testing::check_kv_lens({"encoder_lens", m.encoder_lens}, cross);
  status.add(testing::check_page_table({"page_table", m.page_table}, kText, 1,
                                       std::ssize(batch.req_to_token.slots), text));
  return status;
}

}  // namespace

int main() {
  const std::vector<int32_t> rows = {1, 2, 3}, seq_lens(3, kText), encoder_lens = {3, 5, 4};
  std::vector<int32_t> req_to_token(4 * kWidth);
  std::iota(req_to_token.begin(), req_to_token.end(), 0);
  ForwardBatch batch;
  batch.req_pool_indices = rows, batch.seq_lens = seq_lens, batch.encoder_lens = encoder_lens;
  batch.req_to_token = {req_to_token, kWidth};

  const Status before = check(build(batch, false), batch), after = check(build(batch, true), batch);
  std::printf("before:\n%s\nafter: %s\n", before.to_string().c_str(), after.to_string().c_str());
  // Every row but request 0's: its length, and its columns.
  return before.findings().size() == 2 * (1 + kText) && after.ok() ? 0 : 1;
}
