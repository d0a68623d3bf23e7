// Metadata that a backend has filled rightly, and one number in it that is wrong.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "check/laws/metadata_case.h"
#include "check/runs.h"

namespace shadowgraph {

/// A place where a slip is made.
struct Planting {
  MetadataCase& of;
  const ForwardBatch& batch;

  Meta& meta() const { return of.meta(); }
  template <class T = int32_t>
  void put(int buffer, int64_t i, T value) const {
    const Buffer& b = meta()[static_cast<size_t>(buffer)];
    EXPECT_EQ(meta().arena.write(b, i, &value, 1).to_string(), "ok");
  }
  /// What stands there.
  template <class T = int32_t>
  T get(int buffer, int64_t i) const {
    const Buffer& b = meta()[static_cast<size_t>(buffer)];
    return reinterpret_cast<const T*>(meta().arena.staged(b))[i];
  }
  int64_t width(int table) const { return meta()[static_cast<size_t>(table)].shape[1]; }
};

struct Slip {
  const char* law;   // that is the first to see it
  const char* what;  // the slip, in a test's name
  const char* backend;
  ModelConfig model;
  StepShape shape;
  int32_t bucket;  // rows of a graph; 0: as eager steps are bound
  std::function<void(const Planting&)> plant;
};

inline void PrintTo(const Slip& slip, std::ostream* out) { *out << slip.what; }

/// What is found, of the right metadata first.
inline Status judge_planted(const Slip& slip) {
  StepShape shape = slip.shape;
  shape.page_size = slip.model.page_size * slip.model.dcp_size;
  shape.draft = {slip.model.topk, slip.model.num_steps, slip.model.num_draft_tokens};
  shape.swa = slip.model.swa_pool;
  const Step step = make_step(shape, width_of(slip.model));
  const ForwardBatch batch = step.batch();
  const Limits exact = Limits::exact(batch, slip.model);
  const Limits limits = slip.bucket == 0 ? exact
                                         : Limits::bucket(batch.mode, slip.bucket, exact.max_q_len,
                                                          slip.model, batch.spec.step);
  MetadataCase metadata(*find_backend(slip.backend), limits);
  EXPECT_EQ(metadata.ready().to_string(), "ok");
  if (!metadata.ready().ok()) return {};
  EXPECT_EQ(metadata.run(batch).to_string(), "ok");
  slip.plant({metadata, batch});
  return metadata.judge(batch);
}

}  // namespace shadowgraph
