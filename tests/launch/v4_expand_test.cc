// What a step's first launch expands from raw metadata is what a fill writes, in every mode; it
// reads everything when it runs, and a shadow sees numbers that lead astray.
#include "launch/v4_expand.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backends/sparse/deepseek_v4.h"
#include "backends/step_fixture.h"

namespace shadowgraph::v4_expand_test {
namespace {

using enum ForwardMode;
using V4 = DeepseekV4;

constexpr int64_t kWidth = 40;

/// draft_tokens: of a chain.
ModelConfig small_model(bool swa_pool = false, int32_t draft_tokens = 0) {
  ModelConfig m;
  m.page_size = 4;
  m.max_context_len = 24;
  m.swa_pool = swa_pool;
  m.num_draft_tokens = draft_tokens, m.num_steps = std::max(0, draft_tokens - 1);
  for (const int32_t ratio : {0, 4, 2}) {
    V4Layer l;
    l.window = 9, l.ratio = ratio, l.index_topk = 2;
    l.head_dim = 8, l.rope_dim = 4, l.layout = LatentLayout::kRows;
    m.layers.emplace_back().math = l;
  }
  return m;
}

struct Requests : OwnedBatch {
  Requests(ForwardMode m, Ints seq, Ints extend, const ModelConfig& model)
      : OwnedBatch(m, usual_seq_lens_kind(m), std::move(seq), std::move(extend)) {
    set_pages(4, kWidth);
    if (model.swa_pool) set_swa(40, 4);
    spec.num_steps = model.num_steps, spec.num_draft_tokens = model.num_draft_tokens;
  }
};

/// Raw metadata on a device, with the tables that a launch finds there.
class Raw {
 public:
  explicit Raw(Limits limits) : s_(backend(), in_graph(std::move(limits))) {}

  static const Backend& backend() { return *find_backend("deepseek_v4"); }
  void bind_tables(const OwnedBatch& batch) {
    const auto rows = std::ssize(batch.tokens) / kWidth;
    std::vector<BufferSpec> specs = {{.name = "req_to_token",
                                      .dtype = DType::kI32,
                                      .shape = {rows, kWidth},
                                      .lifetime = Lifetime::kPersistent}};
    if (!batch.swa.empty())
      specs.push_back({.name = "full_to_swa",
                       .dtype = DType::kI64,
                       .shape = {std::ssize(batch.swa)},
                       .lifetime = Lifetime::kPersistent});
    std::vector<Buffer> bound;
    ASSERT_EQ(s_.arena().bind(specs, &bound).to_string(), "ok");
    ASSERT_TRUE(s_.arena().write(bound[0], 0, std::span<const int32_t>(batch.tokens)).ok());
    io_.req_to_token = bound[0].view();
    if (batch.swa.empty()) return;
    ASSERT_TRUE(s_.arena().write(bound[1], 0, std::span<const int64_t>(batch.swa)).ok());
    io_.full_to_swa = bound[1].view();
  }
  /// What is found.
  std::string run(const ForwardBatch& batch, size_t buffer = 0, int32_t value = 0) {
    Status status = s_.refill(batch);
    if (buffer != 0) {
      std::span<int32_t> staged;
      status.add(s_.meta.arena.stage(s_.meta[buffer], {0, 1}, &staged));
      staged[0] = value;
    }
    status.add(s_.arena().upload(s_.stream().handle()));
    backend().forward(s_.stream(), s_.meta, io_);
    s_.stream().synchronize();
    status.add(s_.stream().take_status());
    status.add(s_.device().take_findings());
    return status.to_string();
  }
  const BoundStep& step() const { return s_; }

 private:
  static Limits in_graph(Limits limits) {
    limits.model.in_graph_tables = true;
    return limits;
  }

  BoundStep s_;
  StepIo io_;
};

void expect_alike(const Requests& batch, const Limits& limits) {
  BoundStep filled(Raw::backend(), limits);
  ASSERT_EQ(filled.fill(batch).to_string(), "ok");
  Raw raw(limits);
  raw.bind_tables(batch);
  ASSERT_EQ(raw.run(batch), "ok");
  for (size_t b = 0; b < V4::kFirstOwn; ++b) {
    if (!filled.meta.has(b) || b == V4::kChosen || b == V4::kChosenSlots) continue;
    if (b == V4::of(V4Group::kC4, V4::kBlocks)) continue;  // a launch makes them in both
    SCOPED_TRACE(filled.meta[b].name);
    if (V4::is_long(b)) {
      EXPECT_EQ(raw.step().slots(b), filled.slots(b));
    } else if (b != V4::kPageTable) {
      EXPECT_EQ(raw.step().ints(b), filled.ints(b));
    }
  }
  const Ints rows = filled.ints(V4::kPoolRows);
  for (size_t t = 0; t < rows.size(); ++t) {
    const auto at = static_cast<int64_t>(t);
    const int64_t keys = rows[t] > 0 ? batch.extent(rows[t] - 1).kv_len : 1;
    const int64_t pages = (keys + 3) / 4;
    EXPECT_EQ(raw.step().row(V4::kPageTable, at, pages), filled.row(V4::kPageTable, at, pages));
  }
}

TEST(ExpandV4, HasTheNumbersOfAFill) {
  for (const bool swa : {false, true}) {
    const ModelConfig plain = small_model(swa), drafts = small_model(swa, 3);
    const Requests decode(kDecode, {1, 4, 17}, {}, plain);
    expect_alike(decode, Limits::bucket(kDecode, 4, 1, plain));
    const Requests extend(kExtend, {6, 13, 3}, {3, 8, 3}, plain);
    expect_alike(extend, Limits::exact(extend, plain));
    const Requests verify(kTargetVerify, {6, 1}, {}, drafts);
    expect_alike(verify, Limits::bucket(kTargetVerify, 3, 3, drafts));
    const Requests after(kDraftExtendV2, {9, 7}, {3, 1}, drafts);
    expect_alike(after, Limits::bucket(kDraftExtendV2, 2, 3, drafts));  // padding in the last row
  }
}

TEST(ExpandV4, OfNoRequestIsPadding) {
  const ModelConfig m = small_model();
  const Requests none(kDecode, {}, {}, m);
  Raw raw(Limits::bucket(kDecode, 2, 1, m));
  raw.bind_tables(none);
  EXPECT_EQ(raw.run(none), "ok");
  EXPECT_EQ(raw.step().ints(V4::kSeqLens), (Ints{1, 1}));
  EXPECT_EQ(raw.step().slots(V4::kWindowOutLoc), (Longs{0, 0}));
  EXPECT_EQ(raw.step().row(V4::kWindow, 1, 2), (Ints{0, -1}));
}

TEST(ExpandV4, ARowOrALengthThatLeadsAstrayIsFoundAndNotWalked) {
  const ModelConfig m = small_model();
  const Requests batch(kDecode, {5, 4}, {}, m);
  const Limits limits = Limits::bucket(kDecode, 2, 1, m);
  Raw row(limits);
  row.bind_tables(batch);
  const std::string of_row = row.run(batch, V4::kRawPoolRows, 1000);
  EXPECT_NE(of_row.find(": req_to_token["), std::string::npos) << of_row;
  EXPECT_EQ(row.step().row(V4::kWindow, 0, 2), (Ints{-1, -1}));
  EXPECT_EQ(row.step().row(V4::kWindow, 1, 1), (Ints{batch.tokens[2 * kWidth + 3]}));
  Raw len(limits);
  len.bind_tables(batch);
  const std::string of_len = len.run(batch, V4::kRawLens, INT32_MAX);
  EXPECT_NE(of_len.find(": page_table["), std::string::npos) << of_len;
}

TEST(ExpandV4, BuiltAgainItIsTheSameByteByByte) {
  const ModelConfig m = small_model(true);
  const Requests batch(kDecode, {5}, {}, m);
  ExpandV4 call;
  call.pool_rows = batch.pool_rows, call.prefix_lens = batch.lens, call.kv_lens = batch.lens;
  const Ints ends = {0, 1};
  call.cu_seqlens_q = ends, call.out_cache_loc = batch.swa;
  call.req_to_token = ConstTensorView(batch.tokens.data(), DType::kI32, {2, kWidth});
  const KernelLaunch kept = expand_v4_launch(call, {1, 2});
  EXPECT_EQ(kept, expand_v4_launch(call, {1, 2}));
  const auto [same, rows] = call_of<ExpandV4>(kept);
  EXPECT_EQ(kept, expand_v4_launch(same, rows));
  call.rules.window = 5;
  EXPECT_NE(kept, expand_v4_launch(call, {1, 2}));
}

}  // namespace
}  // namespace shadowgraph::v4_expand_test
