// G29-G45: calls on a capturing stream, its events and its thread.
#include "conformance/programs.h"

namespace shadowgraph {
namespace {

void g29(Run& r) {
  const StreamHandle L = r.sub_is("legacy") ? kLegacyStream : kNullStream;
  r.begin(L);
  r.probe("L", L);
  r.end(L);
  r.sync(L);
}

void g30(Run& r) {
  const StreamHandle P = kPerThreadStream;
  int32_t* A = r.dev(4);
  r.begin(P);
  r.probe("P", P);
  r.fill(P, A, 7);
  const GraphHandle g = r.end(P);
  r.dump("g", g);
  const ExecHandle e = r.inst(g);
  r.run(e, P);
  r.sync(P);
  r.read("A", A, 4);
}

void g31(Run& r) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(4);
  r.begin(s);
  r.begin(s);
  r.probe("s", s);
  r.fill(s, A, 7);
  const GraphHandle g = r.end(s);
  r.probe("s", s);
  r.dump("g", g);
}

void g32(Run& r) {
  const StreamHandle s1 = r.st(), s2 = r.st();
  const EventHandle e = r.ev(), f = r.ev();
  int32_t *A = r.dev(4), *B = r.dev(4);
  r.begin(s1);
  r.rec(e, s1);
  r.wait(s2, e);
  r.probe("s2", s2);
  r.begin(s2);
  r.probe("s1", s1);
  r.probe("s2", s2);
  r.fill(s2, B, 2);
  r.fill(s1, A, 1);
  r.rec(f, s2);
  r.wait(s1, f);
  const GraphHandle g = r.end(s1);
  r.probe("s1", s1);
  r.probe("s2", s2);
  r.dump("g", g);
}

void g33(Run& r) {
  const StreamHandle s = r.st();
  const auto bad_mode = static_cast<CaptureMode>(r.sub_is("three") ? 3 : -1);
  r.step("cudaStreamBeginCapture", r.api().stream_begin_capture(s, bad_mode));
  r.probe("s", s);
  r.end(s);
  r.sync(s);
}

void g34(Run& r) {
  const StreamHandle s = r.st();
  r.end(s);
  r.probe("s", s);
  r.end(kLegacyStream);
  r.sync(s);
}

void g35(Run& r) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(4);
  r.begin(s);
  r.fill(s, A, 7);
  r.step("cudaStreamEndCapture", r.api().stream_end_capture(s, nullptr));
  r.probe("s", s);
  r.fill(s, A, 8);
  const GraphHandle g = r.end(s);
  r.probe("s", s);
  r.dump("g", g);
  r.sync(s);
  r.read("A", A, 4);
}

void g36(Run& r) {
  const StreamHandle s1 = r.st(), s2 = r.st();
  const EventHandle e = r.ev(), f = r.ev();
  int32_t *A = r.dev(4), *B = r.dev(4);
  r.begin(s1);
  r.fill(s1, A, 1);
  r.rec(e, s1);
  r.wait(s2, e);
  r.fill(s2, B, 2);
  const GraphHandle g2 = r.end(s2);
  r.probe("s1", s1);
  r.probe("s2", s2);
  r.rec(f, s2);
  r.wait(s1, f);
  const GraphHandle g1 = r.end(s1);
  r.probe("s1", s1);
  r.probe("s2", s2);
  r.dump("g2", g2);
  r.dump("g1", g1);
}

void g37(Run& r) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(4);
  r.begin(s);
  r.fill(s, A, 1);
  GraphHandle g1;
  r.on_b([&] { g1 = r.end(s); });
  r.probe("s", s);
  r.fill(s, A, 2);
  const GraphHandle g2 = r.end(s);
  r.probe("s", s);
  r.dump("g1", g1);
  r.dump("g2", g2);
  r.sync(s);
}

/// G38-G40: a call that waits for the capturing stream, and the stream's use after it.
template <class Call>
void call_in_capture(Run& r, Call call) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(4);
  r.begin(s);
  r.fill(s, A, 1);
  call(s);
  r.probe("s", s);
  r.fill(s, A, 2);
  const GraphHandle g = r.end(s);
  r.probe("s", s);
  r.dump("g", g);
  r.fill(s, A, 3);
  r.sync(s);
  r.read("A", A, 4);
}

void g38(Run& r) {
  call_in_capture(r, [&r](StreamHandle s) { r.sync(s); });
}
void g39(Run& r) {
  call_in_capture(r, [&r](StreamHandle s) { r.step("cudaStreamQuery", r.api().stream_query(s)); });
}
void g40(Run& r) {
  call_in_capture(
      r, [&r](StreamHandle) { r.step("cudaDeviceSynchronize", r.api().device_synchronize()); });
}

void synchronize_or_query(Run& r, EventHandle e, bool synchronize) {
  if (synchronize) {
    r.step("cudaEventSynchronize", r.api().event_synchronize(e));
  } else {
    r.step("cudaEventQuery", r.api().event_query(e));
  }
}

void g41(Run& r) {
  const StreamHandle s = r.st();
  const EventHandle e = r.ev();
  int32_t* A = r.dev(4);
  r.begin(s);
  r.fill(s, A, 1);
  r.rec(e, s);
  synchronize_or_query(r, e, r.sub_is("sync"));
  r.probe("s", s);
  r.fill(s, A, 2);
  const GraphHandle g = r.end(s);
  r.probe("s", s);
  r.dump("g", g);
}

void g42(Run& r) {
  const StreamHandle s = r.st(), t = r.st_nb();
  const EventHandle e = r.ev();
  int32_t* A = r.dev(4);
  const bool same = r.sub().ends_with("SameStream");
  r.rec(e, same ? s : t);
  r.step("cudaDeviceSynchronize", r.api().device_synchronize());
  r.begin(s);
  synchronize_or_query(r, e, r.sub().starts_with("sync"));
  r.probe("s", s);
  r.fill(s, A, 2);
  const GraphHandle g = r.end(s);
  r.probe("s", s);
  r.dump("g", g);
}

void malloc_during(Run& r) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(4);
  r.begin(s);
  r.fill(s, A, 1);
  const void* P = r.malloc(64);
  r.probe("s", s);
  r.add(s, A, 2);
  const GraphHandle g = r.end(s);
  r.probe("s", s);
  r.dump("g", g);
  const ExecHandle e = r.inst(g);
  r.run(e, s);
  r.sync(s);
  r.read("A", A, 4);
  r.fact("P_null", P == nullptr);
}

void g45(Run& r) {
  const StreamHandle s = r.st();
  int32_t* A = r.dev(4);
  CaptureMode m = r.sub_is("relaxed") ? CaptureMode::kRelaxed : CaptureMode::kThreadLocal;
  const auto exchange = [&](std::string_view fact) {
    r.step("cudaThreadExchangeStreamCaptureMode", r.api().thread_exchange_stream_capture_mode(&m));
    r.fact(fact, std::string(name_of(m)));
  };
  r.begin(s);
  r.fill(s, A, 1);
  exchange("old1");
  r.malloc(64);
  r.probe("s", s);
  exchange("old2");
  r.probe("s", s);
  r.add(s, A, 1);
  const GraphHandle g = r.end(s);
  r.dump("g", g);
}

constexpr Program kLegalityPrograms[] = {
    {"G29", "BeginCapture on the legacy stream", Verdict::kExact, "B3", "legacy null", g29},
    {"G30", "BeginCapture on cudaStreamPerThread", Verdict::kExact, "B3", "", g30},
    {"G31", "BeginCapture twice", Verdict::kExact, "A", "", g31},
    {"G32", "BeginCapture on a forked stream", Verdict::kExact, "A", "", g32},
    {"G33", "invalid capture mode", Verdict::kExact, "D", "minus1 three", g33},
    {"G34", "EndCapture without capture", Verdict::kExact, "D", "", g34},
    {"G35", "EndCapture with null out pointer", Verdict::kExact, "A", "", g35},
    {"G36", "EndCapture on a forked stream", Verdict::kExact, "A", "", g36},
    {"G37", "EndCapture from another thread", Verdict::kExact, "A", "", g37},
    {"G38", "StreamSynchronize of the capturing stream", Verdict::kExact, "A", "", g38},
    {"G39", "StreamQuery of the capturing stream", Verdict::kExact, "A", "", g39},
    {"G40", "DeviceSynchronize while capturing", Verdict::kExact, "A", "", g40},
    {"G41", "synchronise or query a captured event", Verdict::kExact, "A", "sync query", g41},
    {"G42", "synchronise or query an event recorded before capture", Verdict::kExact, "A",
     "sync query syncSameStream querySameStream", g42},
    {"G43", "cudaMalloc during capture", Verdict::kExact, "A:global,thread_local", "",
     malloc_during},
    {"G44", "cudaMalloc during relaxed capture", Verdict::kExact, "A:relaxed", "", malloc_during},
    {"G45", "exchange thread mode around cudaMalloc", Verdict::kExact, "A", "relaxed thread_local",
     g45},
};

}  // namespace

std::span<const Program> programs_legality() { return kLegalityPrograms; }

}  // namespace shadowgraph
