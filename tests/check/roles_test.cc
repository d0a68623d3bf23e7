// Every buffer and scalar that a backend fills is read by a law of metadata, or its row says
// why none reads it.
#include <gtest/gtest.h>

#include <initializer_list>
#include <set>
#include <string>
#include <utility>

#include "fuzz/fuzz.h"
#include "shadowgraph/engine/buffer_info.h"

namespace shadowgraph::roles_test {
namespace {

/// By a metadata's own numbering.
struct Read {
  std::set<size_t> buffers, scalars;
};

void add(std::initializer_list<int> ids, std::set<size_t>* to) {
  for (const int id : ids)
    if (id >= 0) to->insert(static_cast<size_t>(id));
}

Read read_by_laws(const Meta& m) {
  Read read;
  for (const BufferInfo& r : m.backend->info().buffers) {
    if (r.role == Role::kNone) continue;
    add({r.buffer}, is_scalar(r.role) ? &read.scalars : &read.buffers);
    add({r.lens}, &read.buffers);
  }
  for (const LayerKind& kind : m.limits.model.layers) {
    for (const KeyList& l : m.backend->key_lists(m, kind)) {
      add({l.keys, l.lens, l.queries}, &read.buffers);
      if (l.mask) add({l.mask->bits, l.mask->indptr, l.mask->depths}, &read.buffers);
      if (l.items) add({l.items->prefix_lens, l.items->places, l.items->longest}, &read.buffers);
      if (l.splits) add({l.splits->num_splits, l.splits->partial}, &read.buffers);
      if (!l.plan) continue;
      const KeyPlan& p = *l.plan;
      add({p.request_indices, p.qo_tile_indices, p.kv_tile_indices, p.o_indptr, p.merge_indptr,
           p.kv_chunk_size, p.block_valid_mask, p.partial},
          &read.buffers);
      add({p.split_kv}, &read.scalars);
    }
  }
  return read;
}

/// Buffers and scalars of backends, by name, over all that a run binds.
struct Seen {
  std::set<std::string> filled, read;
};

class SeesMeta final : public Tap {
 public:
  explicit SeesMeta(Seen* seen) : seen_(*seen) {}
  void bound(Meta& meta, bool capturing) override {
    for (Meta& child : meta.children) bound(child, capturing);
    const std::string backend(meta.backend->info().name);
    const Read read = read_by_laws(meta);
    for (size_t i = 0; i < meta.buffers.size(); ++i) {
      if (!meta.has(i)) continue;
      const std::string name = backend + meta[i].name.substr(meta[i].name.rfind('/'));
      const Lifetime lifetime = meta[i].lifetime;
      if (lifetime == Lifetime::kConstant || lifetime == Lifetime::kPerStep)
        seen_.filled.insert(name);
      if (read.buffers.contains(i)) seen_.read.insert(name);
    }
    for (size_t i = 0; i < meta.scalars.size(); ++i) {
      const std::string name = backend + " scalar " + std::to_string(i);
      seen_.filled.insert(name);
      if (read.scalars.contains(i)) seen_.read.insert(name);
    }
  }

 private:
  Seen& seen_;
};

TEST(Roles, WhatAFillWritesIsReadByALaw) {
  Seen seen;
  FuzzOptions options;
  options.cases = 1200, options.threads = 1;
  options.kernels = false;
  options.histories.backends.assign(all_backends().begin(), all_backends().end());
  options.histories.tap = [&] { return std::make_unique<SeesMeta>(&seen); };
  EXPECT_EQ(run_fuzz(options, {}, false).findings.to_string(), "ok");
  EXPECT_GT(seen.filled.size(), 200u);
  for (const std::string& name : seen.filled) EXPECT_TRUE(seen.read.contains(name)) << name;
}

TEST(Roles, ABufferHasOneRole) {
  for (const Backend* backend : all_backends()) {
    std::set<std::pair<bool, int>> seen;
    for (const BufferInfo& r : backend->info().buffers)
      EXPECT_TRUE(r.role == Role::kNone || seen.emplace(is_scalar(r.role), r.buffer).second)
          << backend->info().name << ' ' << r.buffer;
  }
}

TEST(Roles, WhatNoLawReadsSaysWhy) {
  for (const Backend* backend : all_backends()) {
    for (const BufferInfo& r : backend->info().buffers) {
      const bool unread = r.role == Role::kUnread || r.role == Role::kUnreadScalar;
      EXPECT_EQ(unread, !r.why.empty()) << backend->info().name << ' ' << r.buffer;
    }
  }
}

}  // namespace
}  // namespace shadowgraph::roles_test
