// The book of contents accepts every history of a right scheduler, and finds each slip of a wrong
// one in a plain history.
#include "runtime/contents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "runtime/histories.h"

namespace shadowgraph {
namespace {

/// A part of a history that goes wrong; empty: none does.
struct Slip {
  std::function<void(const RuntimeConfig&, SchedulerParts&)> parts;
  std::function<void(Step&, PoolState&)> step;  // before the book sees them
};

/// The first finding of histories, with their seed and step.
struct Found {
  std::string law, text;
  uint64_t seed = 0;
  int step = 0;
};

/// Plays histories as src/fuzz/history/history.cc does, until something is found.
Found first_found(const RuntimeConfig& config, uint64_t seeds, int steps, const Slip& slip = {}) {
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    Choices choices{Rng(seed)};
    SchedulerParts parts(config);
    if (slip.parts) slip.parts(config, parts);
    Scheduler scheduler(config, std::move(parts));
    Contents contents(config);
    for (int i = 0; i < steps; ++i) {
      Step step = scheduler.next(choices);
      PoolState pools = scheduler.state();
      if (slip.step) slip.step(step, pools);
      contents.follow(scheduler.told(), pools, &step);
      Status status = check_pool(pools);
      status.add(check_step(step, pools));
      if (status.ok()) status.add(contents.judge(pools, step));
      if (!status.ok())
        return {status.findings()[0].id, std::string(name_of(step.mode)) + ' ' + status.to_string(),
                seed, i};
    }
  }
  return {};
}

RuntimeConfig ahead(RuntimeConfig c) {
  c.flight = 1;
  return c;
}

TEST(Contents, AreRightInEveryHistory) {
  for (const Engine& e : engines()) {
    for (const RuntimeConfig& config : {e.config, ahead(e.config)}) {
      const Found found = first_found(config, 20, 200);
      EXPECT_EQ(found.law, "") << e.name << " page_size " << config.page_size << " flight "
                               << config.flight << " seed " << found.seed << " step " << found.step
                               << '\n'
                               << found.text;
    }
  }
}

}  // namespace
}  // namespace shadowgraph
