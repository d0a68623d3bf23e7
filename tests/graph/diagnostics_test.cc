// Every law of memory and of graphs: a program that breaks it and the same program done right, run
// as eager work and as a replay, on several schedules. The finding must be that law's, and say who
// did what: kernel, node, launch. The last test keeps the table whole.
#include "diagnostics_fixture.h"

namespace shadowgraph::diagnostics_test {
namespace {

void past_the_neighbour(World& w) {
  const Buffer a = w.bind("a", 4), b = w.bind("b", 4);
  const int64_t to_b = ints(b) - ints(a);
  w.run([&](Stream& s) { launch(s, k::wild, ints(a), w.planted ? to_b : int64_t{3}); });
}

void illegal_address(World& w) {
  const Buffer a = w.bind("a", 4);
  w.run([&](Stream& s) { launch(s, k::wild, ints(a), int64_t{w.planted ? 1 << 30 : 3}); });
  w.broken = w.planted;
}

void one_element_too_many(World& w) {
  const Buffer a = w.bind("a", 4);
  w.run([&](Stream& s) { fill(s, ints(a), w.planted ? 5 : 4); });
}

void slot_of_another_request(World& w) {
  const Buffer cache = w.bind("cache", 4), slot = w.bind("slot", 1), out = w.bind("out", 1);
  w.status.add(w.arena.set_owner(cache, {0, 1}, 1));
  w.status.add(w.arena.set_owner(cache, {1, 1}, 2));
  w.write(slot, {w.planted ? 1 : 0});
  const OwnerId owners[] = {1};
  w.device.set_row_owners(owners);
  w.run([&](Stream& s) {
    fill(s, ints(cache));
    launch(s, kernels::gather, ints(out), ints(cache), ints(slot), 1);
  });
}

void never_written(World& w) {
  const Buffer x = w.bind("x", 4), out = w.bind("out", 4);
  w.run([&](Stream& s) {
    fill(s, ints(x), w.planted ? 3 : 4);
    copy(s, out, ints(x));
  });
}

void unset_conditional(World& w) {
  GraphHandle g;
  ConditionalHandle h;
  w.device.graph_create(&g);
  w.device.graph_conditional_handle_create(g, 0, w.planted ? 0 : kCondAssignDefault, &h);
  NodeParams params = ConditionalParams{.handle = h, .bodies = {}};
  NodeHandle node;
  w.device.graph_add_node(g, {}, params, &node);
  ExecHandle exec;
  w.device.graph_instantiate(g, 0, &exec);
  EXPECT_EQ(w.device.graph_launch(exec, w.stream.handle()), DeviceError::kSuccess);
}

void freed_before_it_runs(World& w) {
  const Buffer out = w.bind("out", 4);
  int32_t* const temp = w.allocate("temp");
  fill(w.stream, temp);
  const auto go = w.prepare([&](Stream& s) { copy(s, out, temp); });
  if (w.planted) w.device.free(temp);
  go();
}

void destroyed_exec(World& w) {
  GraphHandle g;
  ExecHandle exec;
  w.device.graph_create(&g);
  w.device.graph_instantiate(g, 0, &exec);
  if (w.planted) w.device.graph_exec_destroy(exec);
  w.device.graph_launch(exec, w.stream.handle());
}

void address_handed_out_again(World& w) {
  const Buffer out = w.bind("out", 4);
  int32_t* const temp = w.allocate("temp");
  fill(w.stream, temp);
  const auto go = w.prepare([&](Stream& s) { copy(s, out, temp); });
  if (w.planted) {
    w.device.free(temp);
    int32_t* const other = w.allocate("other");
    EXPECT_EQ(other, temp);
    fill(w.stream, other);
  }
  go();
}

void update_left_out(World& w) {
  GraphHandle graphs[2];
  for (int i = 0; i < 2; ++i) {
    w.device.stream_begin_capture(w.stream.handle(), CaptureMode::kRelaxed);
    fill(w.stream, ints(w.bind(i == 0 ? "a" : "b", 4)));
    w.device.stream_end_capture(w.stream.handle(), &graphs[i]);
  }
  ExecHandle exec;
  UpdateInfo info;
  w.device.graph_instantiate(graphs[0], 0, &exec);
  if (!w.planted) w.device.graph_exec_update(exec, graphs[1], &info);
  w.device.expect_graph(exec, graphs[1]);
  w.device.graph_launch(exec, w.stream.handle());
}

void input_not_refilled(World& w) {
  const Buffer x = w.bind("x", 4, Lifetime::kPerStep), out = w.bind("out", 4);
  const auto go = w.prepare([&](Stream& s) { copy(s, out, ints(x)); });
  for (int step = 0; step < 2; ++step) {
    w.device.begin_step();
    if (step == 0 || !w.planted) w.write(x, Ints(4, step));
    go();
  }
}

void scratch_of_an_older_launch(World& w) {
  const Buffer scratch = w.bind("scratch", 4, Lifetime::kScratch), out = w.bind("out", 4);
  for (int step = 0; step < 2; ++step) {
    w.device.begin_step();
    w.run([&](Stream& s) {
      if (step == 0 || !w.planted) fill(s, ints(scratch));
      copy(s, out, ints(scratch));
    });
  }
}

void retired_tail(World& w) {
  const Buffer x = w.bind("x", 4), out = w.bind("out", 4);
  w.write(x, {1, 2, 3, 4});
  w.stream.synchronize();
  w.status.add(w.arena.retire(x, {2, 2}));
  w.run([&](Stream& s) { copy(s, out, ints(x), w.planted ? 4 : 2); });
}

void output_read_too_late(World& w) {
  const Buffer out = w.bind("out", 4, Lifetime::kOutput);
  const auto go = w.prepare([&](Stream& s) { fill(s, ints(out)); });
  go();
  const uint64_t ticket = w.device.output_ticket();
  if (w.planted) go();
  w.stream.synchronize();
  w.device.expect_output(out.data, out.bytes(), ticket);
}

/// Work on a side stream, which the copy to out does not wait for if that is the fault.
void beside(World& w, const std::function<void(Stream&, const Buffer&)>& work) {
  const Buffer x = w.bind("x", 4), out = w.bind("out", 4);
  w.write(x, {1, 2, 3, 4});
  Stream side(w.device);
  w.run([&](Stream& s) {
    side.wait_for(s);
    work(side, x);
    if (!w.planted) s.wait_for(side);
    copy(s, out, ints(x));
    s.wait_for(side);
  });
  w.stream.synchronize();
}

void copy_not_waited_for(World& w) {
  const int32_t* const h = w.pinned({5, 6, 7, 8});
  beside(w, [&](Stream& side, const Buffer& x) { side.copy(x.data, h, 16); });
}

void kernel_not_waited_for(World& w) {
  beside(w, [](Stream& side, const Buffer& x) { fill(side, ints(x)); });
}

void allocation_not_waited_for(World& w) {
  Stream side(w.device);
  w.run([&](Stream& s) {
    void* p = nullptr;
    side.wait_for(s);
    w.device.malloc_async(16, s.handle(), &p);
    if (!w.planted) side.wait_for(s);
    fill(side, static_cast<int32_t*>(p));
    s.wait_for(side);
    w.device.free_async(p, s.handle());
  });
  w.stream.synchronize();
}

void host_block_ended(World& w) {
  const Buffer x = w.bind("x", 4);
  const Ints values(4, 3);
  w.device.host_block(values.data(), 16, "staging");
  const auto go = w.prepare([&](Stream& s) { s.copy(x.data, values.data(), 16); });
  if (w.planted) w.device.host_block_ended(values.data());
  go();
  w.stream.synchronize();
}

void staging_changed(World& w) {
  const Buffer x = w.bind("x", 4), done = w.bind("done", 1);
  int32_t *const flag = w.pinned({0}), *const h = w.pinned({1, 2, 3, 4});
  w.run([&](Stream& s) {
    launch(s, k::spinflag, flag, ints(done), 1, k::kSpinT);
    s.copy(x.data, h, 16);
  });
  if (w.planted) h[1] = 9;
  *flag = 1;
  w.stream.synchronize();
  h[1] = 9;  // now it may be
}

void never_freed(World& w) {
  w.run([&](Stream& s) {
    void* p = nullptr;
    w.device.malloc_async(16, s.handle(), &p);
    w.device.name_buffer(p, "temp");
    fill(s, static_cast<int32_t*>(p));
    if (!w.planted) w.device.free_async(p, s.handle());
  });
  w.stream.synchronize();
  w.device.check_leaks();
}

const Fault kFaults[] = {
    {"mem.out_of_bounds",
     "PastTheNeighbour",
     past_the_neighbour,
     {"lands in b[0]", "written by kernel wild, operation 1,"},
     {"lands in b[0]", "written by kernel wild, node 0 of launch 1,"}},
    {"mem.out_of_bounds",
     "IllegalAddress",
     illegal_address,
     {"an illegal address", "written by kernel wild, operation 1,"},
     {"an illegal address", "written by kernel wild, node 0 of launch 1,"}},
    {"mem.red_zone",
     "OneElementTooMany",
     one_element_too_many,
     {"a[4]", "red zone behind it", "written by kernel fill, operation 1,"},
     {"a[4]", "red zone behind it", "written by kernel fill, node 0 of launch 1,"}},
    {"mem.wrong_region",
     "SlotOfAnotherRequest",
     slot_of_another_request,
     {"cache[1]", "that of request 2", "last written by kernel fill, operation",
      "read by kernel gather, operation", "row 0"},
     {"cache[1]", "that of request 2", "last written by kernel fill, node 0 of launch 1",
      "read by kernel gather, node 1 of launch 1", "row 0"}},
    {"mem.uninit_read",
     "NeverWritten",
     never_written,
     {"x[3]", "never written", "read by kernel copy, operation 2,"},
     {"x[3]", "never written", "read by kernel copy, node 1 of launch 1,"}},
    {"mem.uninit_read",
     "UnsetConditional",
     unset_conditional,
     {},
     {"conditional, node 0 of launch 1,"}},
    {"mem.use_after_free",
     "FreedBeforeItRuns",
     freed_before_it_runs,
     {"temp[0]", "freed", "last written by kernel fill, operation 1,",
      "read by kernel copy, operation 2,"},
     {"temp[0]", "freed", "last written by kernel fill, operation 1,",
      "read by kernel copy, node 0 of launch 1,", "pointer 1"}},
    {"mem.use_after_free", "DestroyedExec", destroyed_exec, {}, {"graph exec", "destroyed"}},
    {"mem.stale_generation",
     "AddressHandedOutAgain",
     address_handed_out_again,
     {},
     {"temp", "its address is other now", "read by kernel copy, node 0 of launch 1,", "pointer 1"}},
    {"mem.stale_generation", "UpdateLeftOut", update_left_out, {}, {"another graph's parameters"}},
    {"mem.stale_input",
     "NotRefilled",
     input_not_refilled,
     {"x[0]", "last written by memcpy H2D, operation 1, step 1", "read by kernel copy, operation",
      "step 2"},
     {"x[0]", "last written by memcpy H2D, operation 1, step 1",
      "read by kernel copy, node 0 of launch 2, step 2"}},
    {"mem.stale_input",
     "ScratchOfAnOlderLaunch",
     scratch_of_an_older_launch,
     {"scratch[0]", "last written by kernel fill, operation 1, step 1",
      "read by kernel copy, operation 3, step 2"},
     {"scratch[0]", "last written by kernel fill, node 0 of launch 1, step 1",
      "read by kernel copy, node 0 of launch 2, step 2"}},
    {"mem.stale_input",
     "RetiredTail",
     retired_tail,
     {"x[2]", "retired", "last written by memcpy H2D, operation 1,",
      "read by kernel copy, operation"},
     {"x[2]", "retired", "last written by memcpy H2D, operation 1,",
      "read by kernel copy, node 0 of launch 1,"}},
    {"mem.clobbered_output",
     "ReadTooLate",
     output_read_too_late,
     {"out[0]", "written by kernel fill, operation 2,", "operation 1 or earlier"},
     {"out[0]", "written by kernel fill, node 0 of launch 2,", "operation 1 or earlier"}},
    {"mem.unordered_access",
     "CopyNotWaitedFor",
     copy_not_waited_for,
     {"x[0]", "memcpy, operation", " writes", "kernel copy, operation", " reads"},
     {"x[0]", "memcpy, node 0 of launch 1", " writes", "kernel copy, node 1 of launch 1",
      " reads"}},
    {"mem.unordered_access",
     "AllocationNotWaitedFor",
     allocation_not_waited_for,
     {"mem_alloc, operation", "kernel fill, operation"},
     {"mem_alloc, node 0 of launch 1", "kernel fill, node 1 of launch 1"}},
    {"mem.race",
     "KernelNotWaitedFor",
     kernel_not_waited_for,
     {"x[0]", "kernel fill, operation", " writes", "kernel copy, operation", " reads"},
     {"x[0]", "kernel fill, node 0 of launch 1", " writes", "kernel copy, node 1 of launch 1",
      " reads"}},
    {"mem.host_lifetime",
     "BlockEnded",
     host_block_ended,
     {},
     {"staging", "memcpy, node 0 of launch 1", "finds it ended"}},
    {"mem.host_lifetime",
     "StagingChanged",
     staging_changed,
     {"memcpy, operation 2,", "finds others"},
     {"memcpy, node 1 of launch 1,", "finds others"}},
    {"mem.leak",
     "NeverFreed",
     never_freed,
     {"temp", "live, 16 B; last written by kernel fill, operation 2,"},
     {"temp", "live, 16 B, since mem_alloc, node 0 of launch 1,",
      "last written by kernel fill, node 1 of launch 1,"}},
};

TEST_P(Diagnostics, IsFoundAndItsCleanTwinIsNot) { expect_diagnosis(); }

INSTANTIATE_TEST_SUITE_P(Memory, Diagnostics, ::testing::ValuesIn(runs_of(kFaults)), name_of_run);

TEST(DiagnosticsTable, EveryLawHasAFault) {
  for (const Law& law : kLaws) {
    const bool of_memory = law.id.starts_with("mem.");
    if (law.id == "mem.not_uploaded") continue;  // judged with metadata: metadata_laws_test.cc
    if (law.id == "mem.footprint") continue;  // of launches that run twice: footprint_trial_test.cc
    if (!of_memory && !law.id.starts_with("graph.")) continue;
    if (law.id == "graph.metadata") continue;  // judged by a runner: runner_test.cc
    const std::span<const Fault> faults = of_memory ? kFaults : graph_faults();
    EXPECT_TRUE(std::ranges::any_of(faults, [&](const Fault& f) {
      return f.law.law().id == law.id;
    })) << law.id;
  }
}

}  // namespace
}  // namespace shadowgraph::diagnostics_test
