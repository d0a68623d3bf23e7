// Sizes, strides and offsets at extreme shapes are those of 128 bits, or refused: none wraps.
// Nothing is allocated.
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <string>

#include "attn/page_table.h"
#include "attn/request_terms.h"
#include "core/choices.h"
#include "fuzz/history/history.h"
#include "graph/memory/shadow_blocks.h"
#include "kernels/dense/attend_blocks.h"
#include "kernels/unit.h"
#include "shadowgraph/device/arena.h"
#include "shadowgraph/device/sim_device.h"
#include "shadowgraph/layers/sparse.h"

namespace shadowgraph::wide_sizes_test {
namespace {

__extension__ using Wide = __int128;
constexpr int64_t kInt = std::numeric_limits<int32_t>::max();
constexpr Wide kMost = std::numeric_limits<int64_t>::max();

/// Equal, and the truth is a number that 64 bits hold.
bool same(int64_t got, Wide want) { return want >= -kMost && want <= kMost && Wide{got} == want; }
/// Equal, or so large that any memory refuses it.
bool same_or_huge(int64_t got, Wide want) {
  constexpr int64_t kHuge = int64_t{1} << 60;
  return same(got, want) || (want >= kHuge && got >= kHuge);
}
Wide up(Wide n, Wide unit) { return (n + unit - 1) / unit * unit; }

/// A number of any magnitude up to that.
int64_t any(Rng& rng, int64_t most) {
  const uint64_t bits = uint64_t{rng.below(1u << 31)} << 32 | uint64_t{rng.below(1u << 31)} << 1;
  return static_cast<int64_t>(bits >> rng.below(63) >> 1) % (most + 1);
}
int32_t any_int(Rng& rng, int64_t most = kInt) { return static_cast<int32_t>(any(rng, most)); }

TEST(WideSizes, OffsetsIntoPoolsAndTensors) {
  Rng rng(1);
  for (int i = 0; i < 20000; ++i) {
    KvPlane p;
    p.page_stride = any(rng, int64_t{1} << 31), p.token_stride = any(rng, kInt);
    p.head_stride = any(rng, kInt), p.scale_page_stride = any(rng, kInt);
    p.scale_token_stride = any(rng, kInt), p.scale_head_stride = any(rng, kInt);
    p.head_dim = any_int(rng, 1024);
    const int32_t page = any_int(rng, kInt / 2), token = any_int(rng, 1 << 20);
    const int64_t head = any(rng, 1 << 20), dim = any(rng, p.head_dim);
    const Wide block = Wide{page} * p.page_stride + Wide{head} * p.head_stride;
    EXPECT_TRUE(same(p.offset(page, token, head, dim), block + Wide{token} * p.token_stride + dim));
    EXPECT_TRUE(same(p.scale_offset(page, token, head), Wide{page} * p.scale_page_stride +
                                                            Wide{token} * p.scale_token_stride +
                                                            Wide{head} * p.scale_head_stride));
    KvTokens t;
    t.page_stride = p.page_stride, t.token_stride = p.token_stride;
    t.scale_page_stride = p.scale_page_stride, t.scale_token_stride = p.scale_token_stride;
    const int32_t size = 1 << rng.below(20), in_page = token % size;
    EXPECT_TRUE(same(token_offset(t, &page, size, in_page),
                     Wide{page} * t.page_stride + Wide{in_page} * t.token_stride));
    EXPECT_TRUE(same(scale_offset(t, &page, size, in_page),
                     Wide{page} * t.scale_page_stride + Wide{in_page} * t.scale_token_stride));
    TensorView v(nullptr, DType::kF32, {1, 1, 1}, {p.page_stride, p.head_stride, 1});
    EXPECT_TRUE(same(v.offset(page, head, dim), block + dim));
    const int64_t request = any(rng, kInt), heads = any(rng, 1 << 16);
    const std::span<const float> none;
    EXPECT_TRUE(same(static_cast<int64_t>(scale_index(none, request, 1, heads + 2)),
                     Wide{request} * (heads + 2) + 1));
  }
}

TEST(WideSizes, PagesPanelsAndLatents) {
  Rng rng(2);
  for (int i = 0; i < 20000; ++i) {
    const int64_t tokens = any(rng, int64_t{1} << 60), page = 1 + any(rng, kInt);
    EXPECT_TRUE(same(pages_for(tokens, page), up(tokens, page) / page));
    const Wide last = tokens == 0 ? 0 : Wide{tokens} - (up(tokens, page) / page - 1) * page;
    EXPECT_TRUE(same(last_page_len_for(tokens, page), last));
    const int32_t dim = any_int(rng, kInt - 16);
    EXPECT_TRUE(same(key_panel_elements(DType::kBF16, dim), 16 * up(dim, 2)));
    EXPECT_TRUE(same(value_panel_elements(dim), 16 * up(dim, 16)));
    EXPECT_TRUE(same(v4_page_bytes(page), up(Wide{page} * 584, 576)));
    KvCache c;
    c.num_pages = any(rng, kInt), c.page_size = any_int(rng);
    EXPECT_TRUE(same(c.num_slots(), Wide{c.num_pages} * c.page_size));
    LatentPool pool;
    pool.layout = LatentLayout::kV4, pool.page_size = 1 + any_int(rng, 1 << 20);
    pool.data.shape[0] = any(rng, kInt), pool.data.stride = {any(rng, kInt), 1};
    EXPECT_TRUE(same(pool.slots(), Wide{pool.data.shape[0]} * pool.page_size));
    const int64_t slot = any(rng, std::max<int64_t>(1, pool.slots()) - 1);
    EXPECT_TRUE(same(pool.latent_at(slot), Wide{slot / pool.page_size} * pool.data.stride[0] +
                                               Wide{slot % pool.page_size} * 576));
  }
}

// The workspace of attention, by the shapes of a call.

constexpr Wide kLine = 64, kPage = 4096;
Wide carved(Wide bytes) { return up(bytes, kLine); }

/// Words of work_list.h, and the sizes of its records.
Wide wide_blocks(const CallShape& s) {
  return Wide{s.total_q} / s.block.tokens + (s.block.tokens > 1 ? std::min(s.batch, s.total_q) : 0);
}
Wide wide_cuts(const CallShape& s) {
  return s.threads <= 1 ? 0 : Wide{kPiecesPerThread} * s.threads / s.units + 1;
}
Wide wide_list(const CallShape& s, Wide pieces) {
  const Wide blocks = wide_blocks(s), plan = kPlanHeader + 4 * (blocks + wide_cuts(s));
  return carved(blocks * 32) + carved(plan * 4) + carved(Wide{s.batch} * 8) + carved(blocks) +
         carved(pieces * Wide{sizeof(WorkList::Entry)}) +
         carved(pieces / 2 * Wide{sizeof(WorkList::Cut)});
}
Wide wide_scratch(const CallShape& s) {
  const Wide rows = Wide{s.block.tokens} * s.rows_a_token, qk = s.head_dim_qk,
             vo = up(s.head_dim_vo, 16);
  const Wide state = rows * vo + 2 * up(rows, 16);
  const Wide strip = std::max<Wide>(kMostStripRows, std::min<Wide>(rows, kAmxStripRows));
  const Wide unit = up(rows * qk, 16) + s.block.tile * (up(qk, 2) + vo) + strip * kMostTile +
                    rows * 16 + kMostStripRows * up(qk, 16);
  const Wide thread = up(carved(2 * state * 4) + carved(unit * 4) +
                             carved(Wide{s.block.tokens} * Wide{sizeof(RowMask)}),
                         kPage);
  const Wide cuts = std::min(wide_blocks(s), wide_cuts(s)), splits = up(s.most_keys, 512) / 512;
  return 2 * kLine + wide_list(s, wide_blocks(s) + wide_cuts(s)) + kPage + s.threads * thread +
         cuts * s.units * kLine + cuts * splits * s.units * state * 4;
}

TEST(WideSizes, PlansAndWorkspacesOfAttention) {
  Rng rng(3);
  for (int i = 0; i < 20000; ++i) {
    CallShape s;
    s.batch = any(rng, kInt), s.total_q = any(rng, kInt), s.most_keys = any(rng, kInt);
    s.units = 1 + any_int(rng, kInt - 1), s.rows_a_token = 1 + any_int(rng, 1 << 20);
    s.head_dim_qk = 1 + any_int(rng, 1023), s.head_dim_vo = 1 + any_int(rng, 1023);
    s.threads = 1 + any_int(rng, kInt - 1);
    s.block = {1 + any_int(rng, 255), 64 << rng.below(3)};
    EXPECT_TRUE(same(s.most_blocks(), wide_blocks(s)));
    EXPECT_TRUE(same(s.most_cuts(), wide_cuts(s)));
    EXPECT_TRUE(same(s.plan_size(), kPlanHeader + 4 * (wide_blocks(s) + wide_cuts(s))));
    const int64_t pieces = any(rng, int64_t{1} << 34);
    EXPECT_TRUE(same_or_huge(work_list_bytes(s, pieces), wide_list(s, pieces)));
    EXPECT_TRUE(same_or_huge(scratch_size(s), wide_scratch(s)));
  }
}

/// A slip would give this: the same product in 32 bits.
TEST(WideSizes, SeeAProductOf32Bits) {
  Rng rng(3);
  int64_t seen = 0;
  for (int i = 0; i < 1000; ++i) {
    const int64_t rows = any(rng, kInt), width = any(rng, kInt);
    const auto narrow =
        static_cast<int32_t>(static_cast<uint32_t>(rows) * static_cast<uint32_t>(width));
    seen += same(narrow, Wide{rows} * width) ? 0 : 1;
  }
  EXPECT_GT(seen, 300);
}

TEST(WideSizes, PublicSizesOfAttentionArePositiveForAnyMembers) {
  Rng rng(4);
  const std::vector<int32_t> lens(3), cu = {0, 1, 2, 3};
  for (int i = 0; i < 5000; ++i) {
    PagedAttention c;
    c.params = {.num_qo_heads = any_int(rng),
                .num_kv_heads = any_int(rng),
                .head_dim_qk = any_int(rng),
                .head_dim_vo = any_int(rng)};
    c.pages = PageTable::dense({}, any(rng, std::numeric_limits<int64_t>::max() - 1), lens);
    c.cache.page_size = any_int(rng);
    c.q.rank = 3, c.q.shape = {any(rng, std::numeric_limits<int64_t>::max() - 1), 1, 1};
    if (rng.below(2)) c.cu_seqlens_q = cu;
    c.options.num_threads = any_int(rng);
    EXPECT_GT(attention_scratch_size(c), 0);
    EXPECT_GT(attention_plan_size(c), 0);
    RaggedAttention r;
    r.params = c.params, r.q = c.q, r.k = c.q, r.cu_seqlens_q = cu;
    EXPECT_GT(attention_scratch_size(r), 0);
  }
}

// Memory of the simulated device.

TEST(WideSizes, BuffersOfAnArena) {
  SimDevice device({.choose = {}, .memory_bytes = size_t{1} << 24});
  const Arena arena(device, 1 << 16);
  Rng rng(5);
  int64_t fit = 0;
  for (int i = 0; i < 2000; ++i) {
    BufferSpec spec;
    spec.name = "b", spec.dtype = rng.below(2) ? DType::kF32 : DType::kU8;
    Wide elements = 1;
    for (uint32_t axis = 1 + rng.below(3); axis > 0; --axis) {
      spec.shape.push_back(1 + any(rng, std::numeric_limits<int64_t>::max() - 2));
      elements *= std::min<Wide>(spec.shape.back(), Wide{1} << 40);
    }
    const Wide bytes = elements * Wide{size_of(spec.dtype)};
    std::vector<Buffer> bound;
    Arena scope = arena.scope("s");
    const Status status = scope.bind({&spec, 1}, &bound);
    EXPECT_EQ(status.ok(), bytes <= (1 << 16) - 256) << status.to_string();
    if (!status.ok()) continue;
    ++fit;
    EXPECT_TRUE(same(static_cast<int64_t>(bound[0].bytes()), bytes));
    scope.unbind();
  }
  EXPECT_GT(fit, 20);
}

TEST(WideSizes, SpansOfAFootprint) {
  constexpr size_t kCapacity = size_t{1} << 24;
  Blocks blocks({.capacity = kCapacity});
  std::byte* const base = blocks.address(0);
  Rng rng(6);
  for (int i = 0; i < 20000; ++i) {
    const int64_t most = std::numeric_limits<int64_t>::max() - 1;
    AccessSpan s{base + rng.below(1 << 20),
                 any(rng, most),
                 any(rng, most),
                 1 + static_cast<uint32_t>(any(rng, 16)),
                 Access::kRead,
                 -1};
    if (rng.below(4) == 0) s.first = -s.first;
    const Wide begin =
        (static_cast<const std::byte*>(s.buffer) - base) + Wide{s.first} * s.element_bytes;
    const Wide end = begin + Wide{s.count} * s.element_bytes;
    const auto got = blocks.extent_of_span(s);
    ASSERT_EQ(got.has_value(), begin >= 0 && end <= Wide{kCapacity}) << s.first << ' ' << s.count;
    if (!got) continue;
    EXPECT_TRUE(same(static_cast<int64_t>(got->begin), begin));
    EXPECT_TRUE(same(static_cast<int64_t>(got->end), end));
  }
}

// Buffers of backends. An arena that holds nothing says how large each would have been.

/// By their names. Nothing: the backend does not serve such limits.
std::map<std::string, Wide> sizes_of(const Backend& backend, const Arena& arena, const Limits& l) {
  std::map<std::string, Wide> sizes;
  Meta meta;
  Arena scope = arena.scope("b");
  const Status status = backend.bind(scope, l, &meta);
  scope.unbind();
  for (const Finding& f : status.findings()) {
    if (f.id == "backend.limits") return {};
    if (f.id == "input.shape") {  // 63 bits do not hold it
      sizes[f.where.field] = kMost;
      continue;
    }
    EXPECT_EQ(f.id, "input.memory") << backend.info().name << ": " << f.to_string();
    int64_t bytes = -1;
    std::from_chars(f.got.data(), f.got.data() + f.got.size(), bytes);
    EXPECT_GE(bytes, 0) << f.to_string();
    sizes[f.where.field] = bytes;
  }
  return sizes;
}

constexpr int64_t kArena = 1 << 12;

/// Limits twice as large have buffers at least as large, and no more than two axes twice.
void double_rows(const Backend& backend, const Arena& arena, const ModelConfig& model,
                 ForwardMode mode, int32_t q_len, int64_t* judged) {
  std::map<std::string, Wide> before;
  // From where a decode fills the machine by its rows alone, and no plan cuts any more.
  for (int64_t rows = 1 << 14; rows <= (int64_t{1} << 30); rows *= 2) {
    const auto now =
        sizes_of(backend, arena, Limits::bucket(mode, static_cast<int32_t>(rows), q_len, model, 0));
    if (now.empty()) return;
    for (const auto& [name, bytes] : before) {
      if (bytes <= kArena) continue;  // it may find room where larger ones do not
      ++*judged;
      ASSERT_TRUE(now.contains(name)) << backend.info().name << ' ' << name << ", rows " << rows;
      EXPECT_GE(now.at(name), bytes) << backend.info().name << ' ' << name << ", rows " << rows;
      EXPECT_LE(now.at(name), 4 * bytes + (1 << 16)) << backend.info().name << ' ' << name;
    }
    before = now;
  }
}

TEST(WideSizes, BuffersOfEveryBackendGrowWithItsLimitsOrAreRefused) {
  SimDevice device({.choose = {}, .checked = false, .memory_bytes = size_t{1} << 24});
  const Arena arena(device, kArena);
  std::map<std::string_view, int64_t> judged;
  for (const Backend* backend : all_backends()) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      Choices choices{Rng(seed)};
      History h = generate_history(choices, {&backend, 1});
      Rng rng(seed);
      for (const ForwardMode mode : backend->info().modes) {
        const bool one = is_decode_or_idle(mode);
        h.model.max_context_len = one || rng.below(2) ? 1 << (10 + rng.below(20)) : 4096;
        const int32_t drafts = std::max(1, h.model.num_draft_tokens);
        const int32_t q_len = one ? 1 : is_target_verify(mode) ? drafts : 1 << rng.below(14);
        double_rows(*backend, arena, h.model, mode, q_len, &judged[backend->info().name]);
      }
    }
  }
  for (const Backend* backend : all_backends())
    EXPECT_GT(judged[backend->info().name], 0) << backend->info().name;
}

TEST(WideSizes, LimitsThat32BitsCannotSayAreRefused) {
  ModelConfig model;
  model.max_context_len = static_cast<int32_t>(kInt);
  model.num_draft_tokens = static_cast<int32_t>(kInt), model.topk = 1 << 20;
  const Limits l = Limits::bucket(ForwardMode::kDraftDecode, 1 << 20, 1 << 20, model, 0);
  EXPECT_EQ(l.tokens, kInt);
  EXPECT_EQ(l.max_kv_len, kInt);
  SimDevice device({.choose = {}, .checked = false, .memory_bytes = size_t{1} << 24});
  Meta meta;
  for (const Backend* backend : all_backends()) {
    const Status status = backend->bind(Arena(device, kArena), l, &meta);
    ASSERT_FALSE(status.ok()) << backend->info().name;
    EXPECT_EQ(status.findings()[0].id, "backend.limits");
  }
}

}  // namespace
}  // namespace shadowgraph::wide_sizes_test
