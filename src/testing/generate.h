// What a property's options make of choices: small batches, and schedulers. Tested by
// tests/testing/generate_test.cc.
#pragma once

#include <vector>

#include "core/choices.h"
#include "runtime/pool_state.h"
#include "shadowgraph/testing.h"

namespace shadowgraph::testing {

/// What is wrong with them: test.options, pool.shape.
Status validate(const Options& options);

/// The modes of which there are small batches.
std::vector<ForwardMode> small_modes(const Options& options);

/// The first choice of a history: 0 of a small batch, of which there are some.
inline constexpr uint32_t kKindsOfHistory = 8;

struct SmallBatch {
  Step step;
  int32_t page_size = 1, pool_pages = 0;
};
/// Requires small_modes.
SmallBatch small_batch(const Options& options, Choices& choices);

/// The configuration of a random history. Requires options that validate() accepts.
RuntimeConfig random_config(const Options& options, Choices& choices);

}  // namespace shadowgraph::testing
