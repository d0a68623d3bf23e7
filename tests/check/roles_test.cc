// Every buffer and scalar that a backend fills is read by a law of metadata, or its table of roles
// says why none reads it.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "backends/lists/flashinfer.h"
#include "fuzz/fuzz.h"

namespace shadowgraph {
namespace {

/// By a metadata's own numbering.
struct Read {
  std::set<size_t> buffers, scalars;
};

void add(int first, int count, std::set<size_t>* to) {
  for (int i = 0; first >= 0 && i < count; ++i) to->insert(static_cast<size_t>(first + i));
}

Read read_by_laws(const Meta& m) {
  Read read;
  for (const BufferRole& r : m.backend->info().roles) {
    const bool scalar = r.role >= Role::kLongestQuery;
    add(r.buffer, 1, scalar ? &read.scalars : &read.buffers);
    add(r.lens, 1, &read.buffers);
  }
  for (const LayerKind& kind : m.limits.model.layers) {
    for (const KeyList& l : m.backend->key_lists(m, kind)) {
      for (const int id :
           {l.keys, l.lens, l.queries, l.mask, l.mask_indptr, l.depths, l.num_splits, l.partial})
        add(id, 1, &read.buffers);
      add(l.items, 3, &read.buffers);
      add(l.plan, FlashInfer::kNumPlanIds, &read.buffers);
      add(l.split_kv, 1, &read.scalars);
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

TEST(Roles, WhatNoLawReadsSaysWhy) {
  for (const Backend* backend : all_backends()) {
    for (const BufferRole& r : backend->info().roles) {
      const bool unread = r.role == Role::kUnread || r.role == Role::kUnreadScalar;
      EXPECT_EQ(unread, !r.why.empty()) << backend->info().name << ' ' << r.buffer;
    }
  }
}

}  // namespace
}  // namespace shadowgraph
