// Histories of a backend of your own, judged as `shadowgraph fuzz` judges its twins: a scheduler
// admits, extends, decodes, drafts, verifies, retracts and evicts, and each step that the backend
// serves runs eagerly and as the replay of a graph, padding included. Metadata answers to the laws,
// memory to its shadow, launches to a new recording, and outputs to the oracle. In short:
//
//   class MyBackend final : public Backend { ... };  // shadowgraph/engine/backend.h
//   Status status = testing::fuzz_backend(MyBackend(), {.seconds = 10});
//
// A whole backend is examples/external_backend/. Link shadowgraph::testing. Tested by
// tests/fuzz/fuzz_backend_test.cc.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "shadowgraph/engine/backend.h"
#include "shadowgraph/engine/buffer_info.h"
#include "shadowgraph/status.h"

namespace shadowgraph::testing {

struct BackendFuzzOptions {
  uint64_t seed = 1;
  uint64_t histories = 1000;    // 0: no limit
  double seconds = 0;           // 0: no limit; one of the two is set, or both
  int threads = 0;              // histories at once; 0: one a core. The backend is shared by them
  int32_t steps = 30;           // of a history, at most
  int64_t shrink_tries = 1000;  // run to make one that fails smaller, for 20 s at most
  // Faults that engines shipped, planted together: ids of `shadowgraph list faults`. They find
  // buffers by the names that the backend gives them, such as kv_lens, page_table, kv_indices
  std::vector<std::string> faults;
  // Runs only the history that these choices make: "3.0.1". Empty: the value of the environment
  // variable SHADOWGRAPH_CHOICES, if it is set
  std::string choices;
  std::string command;  // the command that runs this test, for Finding::reproduce
};

/// The histories and steps that were played; empty if one history was repeated.
struct BackendFuzzCounts {
  uint64_t histories = 0;                // of which the backend ran a step
  uint64_t skipped = 0;                  // of which it ran none
  std::map<std::string, int64_t> steps;  // "decode eager", "decode replay": how many ran
  std::string faults;  // of what is planted: found, missed, inert or never acted; empty: nothing is
};

/// Plays histories until one fails, and shrinks it. Findings name the law, the buffer, row, value
/// and limit, the step, and the choices that repeat it. test.options: options that there are not, a
/// backend without a name or modes. test.nothing: a mode of info() that no history had.
/// fault.missed: what is planted changed something, and nothing noticed it.
Status fuzz_backend(const Backend& backend, const BackendFuzzOptions& options = {},
                    BackendFuzzCounts* counts = nullptr);

}  // namespace shadowgraph::testing
