#include "fuzz/grid/grid_parts.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "fuzz/grid/step_grid.h"
#include "fuzz/history/small_layer.h"

namespace shadowgraph {
namespace {

using PartWalk = std::function<void(const GridPart&)>;
using Ints = std::vector<int32_t>;

constexpr int32_t kPageSizes[] = {1, 2, 4};
constexpr PageOrder kOrders[] = {PageOrder::kTidy, PageOrder::kReversed, PageOrder::kInterleaved};
constexpr int32_t kMostRequests = 3, kMostBucket = 4;
// Tokens before a step of blocks, and rows of req_to_token with its row 0
constexpr int32_t kMostBlockPrefix = 10, kMaxRows = 4;

/// How many vectors of that size have values from 0 to base - 1.
uint64_t count_vectors(int32_t size, uint64_t base) {
  return size == 0 ? 1 : base * count_vectors(size - 1, base);
}

/// The vector with that number: its values are the digits, the lowest first.
Ints vector_of(uint64_t number, int32_t size, uint64_t base) {
  Ints v;
  for (; std::ssize(v) < size; number /= base) v.push_back(static_cast<int32_t>(number % base));
  return v;
}

/// Adds make(v, i) for each vector of that size and base, in each of so many variants.
template <class Make>
void add_shapes(int32_t size, int32_t base, uint64_t variants, GridPart* part, const Make& make) {
  const auto values = static_cast<uint64_t>(base);
  part->shapes.push_back({count_vectors(size, values) * variants, [=](uint64_t number) {
                            return make(vector_of(number / variants, size, values),
                                        number % variants);
                          }});
}
template <class Make>
void add_shapes(int32_t size, int32_t base, GridPart* part, const Make& make) {
  add_shapes(size, base, 1, part, [make](const Ints& v, uint64_t) { return make(v); });
}

/// Lengths of a prefix: to one more than two pages.
int32_t most_prefix(int32_t page_size) { return 2 * page_size + 1; }

GridPart part_of(int32_t page_size, const Ints& windows, const DraftShape& draft) {
  GridPart part;
  ModelConfig& m = part.model;
  m.page_size = page_size;
  for (const int32_t window : windows) m.layers.push_back(small_layer(window));
  m.topk = draft.topk, m.num_steps = draft.num_steps, m.num_draft_tokens = draft.num_draft_tokens;
  m.max_context_len = most_prefix(page_size) + 3;
  part.width = m.max_context_len + draft_reserve(draft, page_size);
  return part;
}

/// Every decode of up to 3 requests, in every bucket up to 4, with two fill values.
void decode_parts(const PartWalk& walk) {
  for (const int32_t page_size : kPageSizes) {
    for (const PageOrder order : kOrders) {
      for (int32_t bucket = 1; bucket <= kMostBucket; ++bucket) {
        for (const int32_t fill : {1, page_size + 1}) {
          GridPart part = part_of(page_size, {-1, 1}, {});
          part.model.seq_len_fill = fill;
          part.bucket = bucket;
          part.max_tokens = kMostBucket;
          for (int32_t n = 1; n <= std::min(bucket, kMostRequests); ++n) {
            add_shapes(n, most_prefix(page_size) + 1, &part, [=](const Ints& prefix) {
              return StepShape{.page_size = page_size, .order = order, .prefix_lens = prefix};
            });
          }
          walk(part);
        }
      }
    }
  }
}

/// The same with every order of 6 pages.
void decode_plan_parts(const PartWalk& walk) {
  decode_parts([&](GridPart part) {
    part.permuted_pages = 6;
    walk(part);
  });
}

/// Prefixes and new tokens of a batch, as one vector.
void add_extends(int32_t requests, int32_t most_q, const StepShape& like, GridPart* part) {
  const int32_t base = (most_prefix(like.page_size) + 1) * most_q;
  add_shapes(requests, base, part, [like, most_q](const Ints& v) {
    StepShape shape = like;
    for (const int32_t x : v) {
      shape.prefix_lens.push_back(x / most_q);
      shape.q_lens.push_back(x % most_q + 1);
    }
    return shape;
  });
}

/// Every extend of up to 3 requests (2 where pages have 4 tokens) by up to 3 tokens, under every
/// window up to 3.
void extend_parts(const PartWalk& walk) {
  for (const int32_t page_size : kPageSizes) {
    for (const PageOrder order : kOrders) {
      for (int32_t window = 0; window <= 3; ++window) {
        GridPart part = part_of(page_size, {-1, window}, {});
        part.max_tokens = 9;
        for (int32_t n = 1; n <= (page_size < 4 ? 3 : 2); ++n)
          add_extends(n, 3, {.mode = ForwardMode::kExtend, .page_size = page_size, .order = order},
                      &part);
        walk(part);
      }
    }
  }
}

/// Every step of every draft of up to 3 requests: chains, and 2 and 3 branches.
void draft_parts(const PartWalk& walk) {
  for (const int32_t page_size : kPageSizes) {
    for (const PageOrder order : kOrders) {
      for (const int32_t topk : {1, 2, 3}) {
        for (const int32_t steps : {2, 3, 5}) {
          const DraftShape draft{topk, steps, steps + 1};
          GridPart part = part_of(page_size, {-1, 1}, draft);
          part.bucket = 3;
          part.max_tokens = 3 * topk;
          for (int32_t n = 1; n <= 3; ++n) {
            add_shapes(n, most_prefix(page_size) + 1, static_cast<uint64_t>(steps - 1), &part,
                       [=](const Ints& prefix, uint64_t step) {
                         return StepShape{.mode = ForwardMode::kDraftDecode,
                                          .page_size = page_size,
                                          .order = order,
                                          .prefix_lens = prefix,
                                          .draft = draft,
                                          .draft_step = static_cast<int32_t>(step)};
                       });
          }
          walk(part);
        }
      }
    }
  }
}

/// All trees of a draft. Chains have no mask, and need none.
class Trees {
 public:
  Trees(int32_t tokens, int32_t topk) {
    if (topk > 1) trees_ = std::make_shared<const std::vector<DraftTree>>(all_trees(tokens, topk));
  }
  uint64_t size() const { return trees_ == nullptr ? 1 : trees_->size(); }
  /// One for each request.
  void add(const Ints& which, StepShape* shape) const {
    for (const int32_t tree : which)
      if (trees_ != nullptr) shape->trees.push_back((*trees_)[static_cast<size_t>(tree)]);
  }

 private:
  std::shared_ptr<const std::vector<DraftTree>> trees_;
};

/// Every tree of up to 5 tokens over every prefix, up to 2 requests, each with every tree; and the
/// draft extends after them.
void verify_parts(const PartWalk& walk) {
  for (const int32_t page_size : kPageSizes) {
    for (const PageOrder order : kOrders) {
      for (int32_t tokens = 1; tokens <= 5; ++tokens) {
        for (const int32_t topk : {1, 2}) {
          const DraftShape draft{topk, std::max(1, tokens - 1), tokens};
          const Trees trees(tokens, topk);
          GridPart part = part_of(page_size, {-1, 1}, draft);
          part.bucket = 3;
          part.max_tokens = 3 * (tokens + 1);
          for (int32_t n = 1; n <= 2; ++n) {
            add_shapes(n, most_prefix(page_size) + 1, count_vectors(n, trees.size()), &part,
                       [=](const Ints& prefix, uint64_t choice) {
                         StepShape shape{.mode = ForwardMode::kTargetVerify,
                                         .page_size = page_size,
                                         .order = order,
                                         .prefix_lens = prefix,
                                         .draft = draft};
                         trees.add(vector_of(choice, n, trees.size()), &shape);
                         return shape;
                       });
            if (topk == 1)
              add_extends(n, std::min(tokens, 3),
                          {.mode = ForwardMode::kDraftExtendV2,
                           .page_size = page_size,
                           .order = order,
                           .draft = draft},
                          &part);
          }
          walk(part);
        }
      }
    }
  }
}

/// A model of dual chunks, of one page each or two.
GridPart dual_part_of(int32_t page_size, int32_t pages) {
  GridPart part = part_of(page_size, {-1}, {});
  part.model.layers[0].dual_chunk = true;
  part.model.dual_chunk = {
      .chunk_size = pages * page_size + 1, .local_size = 1, .original_max_position = 2};
  return part;
}

/// fn(part, shape) with the model and what all its shapes have in common.
template <class Fn>
void each_dual_part(Fn fn) {
  for (const int32_t page_size : kPageSizes)
    for (const int32_t pages : {1, 2})
      for (const PageOrder order : kOrders)
        fn(dual_part_of(page_size, pages), StepShape{.page_size = page_size, .order = order});
}

/// Every extend of up to 2 requests by up to 3 tokens, and every decode of up to 3 in a bucket of
/// 4.
void dual_chunk_parts(const PartWalk& walk) {
  each_dual_part([&](GridPart part, const StepShape& like) {
    part.max_tokens = 6;
    StepShape extend = like;
    extend.mode = ForwardMode::kExtend;
    for (int32_t n = 1; n <= 2; ++n) add_extends(n, 3, extend, &part);
    walk(part);
    part.shapes.clear();
    part.bucket = kMostBucket;
    part.max_tokens = kMostBucket;
    for (int32_t n = 1; n <= kMostRequests; ++n) {
      add_shapes(n, most_prefix(like.page_size) + 1, &part, [like](const Ints& prefix) {
        StepShape shape = like;
        shape.prefix_lens = prefix;
        return shape;
      });
    }
    walk(part);
  });
}

/// These decodes with every order of 6 pages.
void dual_chunk_plan_parts(const PartWalk& walk) {
  dual_chunk_parts([&](GridPart part) {
    if (part.bucket == 0) return;
    part.permuted_pages = 6;
    walk(part);
  });
}

constexpr RecurrentFamily kFamilies[] = {RecurrentFamily::kMamba2, RecurrentFamily::kGdn,
                                         RecurrentFamily::kKda, RecurrentFamily::kLightning};

GridPart states_part(RecurrentFamily family, const DraftShape& draft) {
  GridPart part = part_of(1, {}, draft);
  RecurrentLayer layer;
  layer.family = family;
  layer.num_v_heads = family == RecurrentFamily::kGdn || family == RecurrentFamily::kMamba2 ? 2 : 1;
  layer.head_dim_k = layer.head_dim_v = 3;
  layer.conv_width = family == RecurrentFamily::kLightning ? 0 : 3;
  layer.chunk_size = 3;
  part.model.layers.emplace_back().math = layer;
  part.model.max_context_len = 12;
  part.width = part.model.max_context_len + draft_reserve(draft, 1);
  part.max_tokens = 24;
  return part;
}

/// Extends of recurrent layers: up to 3 requests with up to 2 tokens before and 4 new ones, which
/// leave snapshots or not; every decode of so many in every bucket; and every tree of 4 tokens.
void state_parts(const PartWalk& walk) {
  for (const RecurrentFamily family : kFamilies) {
    for (const bool track : {false, true}) {
      GridPart part = states_part(family, {});
      part.model.track_states = track;
      for (int32_t n = 1; n <= 3; ++n) {
        add_shapes(n, 12, &part, [track](const Ints& v) {
          StepShape shape{.mode = ForwardMode::kExtend, .states = true, .track = track};
          for (const int32_t x : v)
            shape.prefix_lens.push_back(x / 4), shape.q_lens.push_back(x % 4 + 1);
          return shape;
        });
      }
      walk(part);
    }
    for (int32_t bucket = 1; bucket <= kMostBucket; ++bucket) {
      GridPart part = states_part(family, {});
      part.bucket = bucket;
      for (int32_t n = 1; n <= std::min(bucket, kMostRequests); ++n)
        add_shapes(n, 3, &part, [](Ints prefix) {
          for (int32_t& tokens : prefix) ++tokens;  // whoever decodes has some
          return StepShape{.prefix_lens = std::move(prefix), .states = true};
        });
      walk(part);
    }
    for (const int32_t topk : {1, 2}) {
      if (topk > 1 && family == RecurrentFamily::kLightning) continue;
      const DraftShape draft{topk, 3, 4};
      const Trees trees(4, topk);
      GridPart part = states_part(family, draft);
      part.bucket = 3;
      const int32_t values = topk > 1 ? static_cast<int32_t>(trees.size()) : 3;
      for (int32_t n = 1; n <= 2; ++n) {
        add_shapes(n, values, &part, [=](const Ints& v) {
          StepShape shape{.mode = ForwardMode::kTargetVerify, .draft = draft, .states = true};
          for (const int32_t x : v) shape.prefix_lens.push_back(1 + x % 3);
          trees.add(v, &shape);
          return shape;
        });
      }
      walk(part);
    }
  }
}

constexpr int32_t kIndexPage = 64;
/// Prefixes about the ends of pages.
const Ints kSparsePrefixes = {0, 1, 62, 63, 64, 128};

/// A model whose queries choose three keys.
GridPart sparse_part_of(const DraftShape& draft, bool ragged = false) {
  GridPart part = part_of(kIndexPage, {}, draft);
  part.model.layers = {small_sparse_layer(3, ragged)};
  return part;
}

/// Batches of so many requests with prefixes of these, as like says; most_q: of extends, by so many
/// tokens each, from least_q on.
void add_sparse_shapes(int32_t requests, const StepShape& like, GridPart* part, int32_t least_q = 0,
                       int32_t most_q = 0) {
  const int32_t lens = std::max(1, most_q - least_q + 1);
  const auto prefixes = static_cast<int32_t>(kSparsePrefixes.size());
  add_shapes(requests, prefixes * lens, part, [=](const Ints& v) {
    StepShape shape = like;
    for (const int32_t x : v) {
      shape.prefix_lens.push_back(kSparsePrefixes[static_cast<size_t>(x / lens)]);
      if (most_q > 0) shape.q_lens.push_back(least_q + x % lens);
    }
    return shape;
  });
}

/// Decodes of up to 3 requests in a bucket of 4, with two fill values.
void sparse_decode_parts(const PartWalk& walk) {
  for (const PageOrder order : kOrders) {
    for (const int32_t fill : {1, 5}) {
      GridPart part = sparse_part_of({});
      part.model.seq_len_fill = fill;
      part.bucket = kMostBucket;
      part.max_tokens = kMostBucket;
      for (int32_t n = 1; n <= kMostRequests; ++n)
        add_sparse_shapes(n, {.page_size = kIndexPage, .order = order}, &part);
      walk(part);
    }
  }
}

/// Extends of up to 2 requests by up to 2 tokens, by slots and by gathered latents; these decodes;
/// verifies of chains of 2 and 3 tokens, and the draft extends after them.
void sparse_parts(const PartWalk& walk) {
  for (const PageOrder order : kOrders) {
    for (const bool ragged : {false, true}) {
      GridPart part = sparse_part_of({}, ragged);
      part.max_tokens = 4;
      for (int32_t n = 1; n <= 2; ++n)
        add_sparse_shapes(n,
                          {.mode = ForwardMode::kExtend, .page_size = kIndexPage, .order = order},
                          &part, 1, 2);
      walk(part);
    }
    for (const int32_t tokens : {2, 3}) {
      const DraftShape draft{1, tokens - 1, tokens};
      GridPart part = sparse_part_of(draft);
      part.bucket = 3;
      part.max_tokens = 3 * tokens;
      for (int32_t n = 1; n <= 2; ++n) {
        StepShape like{.mode = ForwardMode::kTargetVerify,
                       .page_size = kIndexPage,
                       .order = order,
                       .draft = draft};
        add_sparse_shapes(n, like, &part);
        like.mode = ForwardMode::kDraftExtendV2;
        add_sparse_shapes(n, like, &part, tokens, tokens);
      }
      walk(part);
    }
  }
  sparse_decode_parts(walk);
}

/// These decodes with every order of 6 pages.
void sparse_plan_parts(const PartWalk& walk) {
  sparse_decode_parts([&](GridPart part) {
    part.permuted_pages = 6;
    walk(part);
  });
}

/// A model of blocks: none, of two tokens, of four that overlap; a pool by pages, or unified.
GridPart block_part_of(int32_t page_size, const DraftShape& draft, bool unified) {
  GridPart part = part_of(page_size, {}, draft);
  for (const int32_t ratio : {0, 2, 4})
    if (ratio <= page_size)
      part.model.layers.push_back(small_v4_layer(ratio, unified ? kMaxRows : 0));
  part.model.max_context_len = kMostBlockPrefix + 4;
  part.width = part.model.max_context_len + draft_reserve(draft, page_size);
  part.bucket = 3;
  part.max_tokens = 12;
  return part;
}

/// Steps over prefixes to behind the end of a block of four after another: decodes of up to 2
/// requests, extends of up to 2 by up to 4 tokens, verifies of up to 2 of 1 to 4 drafts.
void block_parts(const PartWalk& walk) {
  for (const int32_t page_size : {2, 4, 8}) {
    for (const PageOrder order : kOrders) {
      for (const bool unified : {false, true}) {
        for (int32_t drafts = 0; drafts <= 4; ++drafts) {
          const DraftShape draft =
              drafts == 0 ? DraftShape{} : DraftShape{1, std::max(1, drafts - 1), drafts};
          GridPart part = block_part_of(page_size, draft, unified);
          StepShape like{.page_size = page_size, .order = order, .draft = draft};
          for (int32_t n = 1; n <= 2; ++n) {
            add_shapes(n, kMostBlockPrefix + 1, drafts == 0 ? 1 : 2, &part,
                       [=](const Ints& prefix, uint64_t extends) {
                         StepShape shape = like;
                         shape.prefix_lens = prefix;
                         shape.mode =
                             drafts == 0 ? ForwardMode::kDecode : ForwardMode::kTargetVerify;
                         if (extends == 0) return shape;
                         shape.mode = ForwardMode::kExtend;
                         shape.q_lens.assign(static_cast<size_t>(n), drafts);
                         shape.q_lens.front() = 1 + drafts % 3;
                         return shape;
                       });
          }
          walk(part);
        }
      }
    }
  }
}

constexpr std::string_view kDense[] = {"flashattention"};
constexpr std::string_view kStates[] = {"mamba2", "gdn", "kda", "lightning"};
constexpr std::string_view kDualChunk[] = {"dual_chunk"};
constexpr std::string_view kSparse[] = {"dsa"};
constexpr std::string_view kBlocks[] = {"deepseek_v4", "deepseek_v4_hip"};

constexpr StepGrid kGrids[] = {
    {"decode", "decodes of up to 3 requests, pages of 1, 2, 4, every bucket up to 4", kDense,
     decode_parts},
    {"extend", "extends of up to 3 requests by up to 3 tokens, pages of 1, 2, 4, windows up to 3",
     kDense, extend_parts},
    {"draft", "draft decodes of up to 3 requests, 1 to 3 branches, 2, 3 and 5 steps", kDense,
     draft_parts},
    {"verify", "target verifies of every tree of up to 5 tokens, 2 requests, and the draft extends",
     kDense, verify_parts},
    {"states",
     "recurrent layers: extends of up to 3 requests by up to 4 tokens, decodes, trees of 4",
     kStates, state_parts},
    {"decode-plans", "the metadata of these decodes, with every order of 6 pages", kDense,
     decode_plan_parts},
    {"dual-chunk", "extends of up to 2 requests, decodes of up to 3, in chunks of 1 and 2 pages",
     kDualChunk, dual_chunk_parts},
    {"dual-chunk-plans", "the metadata of these decodes, with every order of 6 pages", kDualChunk,
     dual_chunk_plan_parts},
    {"sparse",
     "extends and verifies of up to 2 requests, decodes of up to 3, about the ends of pages",
     kSparse, sparse_parts},
    {"sparse-plans", "the metadata of these decodes, with every order of 6 pages", kSparse,
     sparse_plan_parts},
    {"blocks",
     "steps of up to 2 requests around the ends of blocks of 2 and 4 tokens, in both pools",
     kBlocks, block_parts},
};

}  // namespace

std::span<const StepGrid> step_grids() { return kGrids; }

const StepGrid* find_step_grid(std::string_view name) {
  const auto it = std::ranges::find_if(kGrids, [&](const StepGrid& g) { return g.name == name; });
  return it == std::end(kGrids) ? nullptr : it;
}

}  // namespace shadowgraph
