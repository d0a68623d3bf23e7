// A fill allocates nothing, whatever the mode; nor does the next one, before or after an upload.
#include <cstdlib>
#include <new>

#include "backends/flash_attention.h"
#include "backends/step_fixture.h"

namespace {
thread_local long allocations = 0;

void* allocate(std::size_t size, std::size_t alignment) {
  ++allocations;
  const std::size_t rounded = (size + alignment) / alignment * alignment;
  if (void* p = std::aligned_alloc(alignment, rounded)) return p;
  throw std::bad_alloc();
}
void* allocate_or_null(std::size_t size, std::size_t alignment) noexcept {
  try {
    return allocate(size, alignment);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
constexpr std::size_t kDefault = alignof(std::max_align_t);
}  // namespace

void* operator new(std::size_t size) { return allocate(size, kDefault); }
void* operator new[](std::size_t size) { return allocate(size, kDefault); }
void* operator new(std::size_t size, std::align_val_t a) {
  return allocate(size, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t size, std::align_val_t a) {
  return allocate(size, static_cast<std::size_t>(a));
}
// std::stable_sort asks for its buffer so.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate_or_null(size, kDefault);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return allocate_or_null(size, kDefault);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace shadowgraph {
namespace {

using enum ForwardMode;
using enum SeqLensKind;

const FlashAttention kFa;

/// A model with every kind of table, and a prefix in chunks.
ModelConfig model() {
  ModelConfig m;
  m.max_context_len = 32;
  m.page_size = 2;
  m.topk = 2, m.num_steps = 3, m.num_draft_tokens = 3;
  m.swa_pool = true, m.attention_chunk = 4, m.max_encoder_len = 3;
  m.prefix_chunk_tokens = 9;
  m.layers.resize(5);
  m.layers[0].params.num_qo_heads = m.layers[0].params.head_dim_vo = 1;
  m.layers[1].params.window_left = 3;
  m.layers[2].local = true;
  m.layers[3].cross = true;
  m.layers[4].mla = true;
  return m;
}

void set_fields(OwnedBatch* b) {
  b->set_pages(2, 40);
  b->set_swa(100, 2);
  b->set_encoders({1, 3}, {1, 2, 3, 4});
  b->spec.topk = 2, b->spec.num_steps = 3, b->spec.num_draft_tokens = 3;
  if (b->mode == kDraftDecode) b->set_loc({30, 31, 32, 34, 35, 36, 38, 39, 40, 42, 43, 44});
  if (b->mode == kTargetVerify)
    b->set_trees({{{1, 0, 0}, {1, 1, 0}, {1, 0, 1}}, {{1, 0, 0}, {1, 1, 0}, {1, 1, 1}}});
}

class Allocation : public testing::TestWithParam<ForwardMode> {};

TEST_P(Allocation, AFillHasNone) {
  const bool one = is_decode(GetParam());
  const Ints news = is_extend(GetParam()) && !is_target_verify(GetParam()) ? Ints{3, 2} : Ints{};
  OwnedBatch longer(GetParam(), kPrefix, {17, 20}, news),
      shorter(GetParam(), kPrefix, {5, 3}, news);
  for (OwnedBatch* b : {&longer, &shorter}) set_fields(b);
  BoundStep s(kFa, Limits::bucket(GetParam(), 3, one ? 1 : 3, model()), false);
  ASSERT_EQ(s.fill(longer).to_string(), "ok");
  for (int round = 0; round < 20; ++round) {
    const OwnedBatch& b = round % 2 == 0 ? shorter : longer;
    const long before = allocations;
    const bool ok = s.refill(b).ok();
    EXPECT_EQ(allocations, before) << round;
    ASSERT_TRUE(ok);
    if (round == 10) {
      ASSERT_EQ(s.fill(b).to_string(), "ok");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(FlashAttention, Allocation,
                         testing::Values(kDecode, kExtend, kDraftExtend, kTargetVerify,
                                         kDraftDecode));

}  // namespace
}  // namespace shadowgraph
