#include "bench/run_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "bench/judge_job.h"
#include "bench/merge_problem.h"
#include "bench/problem.h"
#include "bench/state_problem.h"
#include "bench/team.h"
#include "bench/units/best.h"

namespace shadowgraph::bench {
namespace {

constexpr double kLeastSeconds = 0.015;  // of a contestant in a round: short calls are repeated
constexpr int kMostCalls = 10'000;
constexpr int kTriesPerRound = 3;  // rounds that are tried for each that is wanted
constexpr int kSeriesRounds = 5;

size_t index_of(Probe probe) { return static_cast<size_t>(probe); }

/// Why a shape cannot run here; empty: it can.
std::string why_not(const Shape& shape) {
  if (!shape.isa.empty() && !has_isa(shape.isa)) return fmt::format("no {} here", shape.isa);
  if (shape.threads > most_threads())
    return fmt::format("needs {} threads, there can be {}", shape.threads, most_threads());
  if (shape.judges()) return missing_job(shape.judging);
  // Two threads of one core share what is measured.
  if (shape.threads > num_cores())
    return fmt::format("needs {} cores, there are {}", shape.threads, num_cores());
  return "";
}

template <class Value>
double median_of(const std::vector<Round>& rounds, Value value) {
  std::vector<double> values;
  for (const Round& round : rounds) values.push_back(value(round));
  return median(std::move(values));
}

ProbeFigures medians_of(const std::vector<Round>& rounds) {
  ProbeFigures medians;
  for (const Probe probe : kAllProbes) {
    if (!rounds[0].probes[index_of(probe)]) continue;
    medians[index_of(probe)] =
        median_of(rounds, [&](const Round& r) { return *r.probes[index_of(probe)]; });
  }
  return medians;
}

/// What is timed beside the row's own call, from 1 on.
std::string other_name(const Row& row, size_t i) {
  return row.of.measure == Measure::kPeer ? std::string(row.of.peer) : fmt::format("base {}", i);
}

void add_case(Status& status, const std::string& id, const std::string& reproduce) {
  for (Finding& f : status.findings()) f.case_id = "bench " + id, f.reproduce = reproduce;
}

std::string command(const Row& row, const BenchOptions& options) {
  return fmt::format("shadowgraph bench --rows {} --rounds 1{}", row.id, options.flags);
}

}  // namespace

std::string Bench::why_not(const Row& row) const {
  std::string why = bench::why_not(row.shape);
  for (const Base& base : row.of.bases) {
    if (why.empty()) why = bench::why_not(base.shape);
  }
  if (!why.empty() || row.of.measure != Measure::kPeer) return why;
  const Peer* peer = options_.find_peer(row.of.peer);
  return peer == nullptr ? fmt::format("built without {}", row.of.peer) : peer->missing();
}

std::string void_reason(const Row& row, const std::vector<Round>& rounds, const ProbeFacts& facts) {
  const ProbeFigures probes = medians_of(rounds);
  if (row.of.measure == Measure::kProbe) return limit_below_floor(row.of.probe, probes, facts);
  if (row.of.measure != Measure::kPeer || row.of.peer_floor == 0) return "";
  std::string why = below_floor(Probe::kFmaPeak, probes, facts);
  if (!why.empty()) return why;
  const double share = median_of(rounds, [&](const Round& r) {
    return flop_of(row.shape) / r.seconds[1] / *r.probes[index_of(Probe::kFmaPeak)];
  });
  if (share >= row.of.peer_floor) return "";
  return fmt::format("{} over fma_peak is {:.2f}, below its floor of {:.2f}", row.of.peer, share,
                     row.of.peer_floor);
}

std::unique_ptr<TimedCall> make_timed(const Shape& shape, const BenchOptions& options) {
  if (shape.judges()) return make_job(shape.judging, options.seed);
  if (shape.merges()) return std::make_unique<MergeProblem>(shape, options.seed, options.threads);
  return std::make_unique<StateProblem>(shape, options.seed, options.threads);
}

/// One that is timed in a round: our call, or a peer's.
struct Bench::Contestant {
  std::unique_ptr<TimedCall> ours;  // of a peer: where its inputs come from
  Problem* problem = nullptr;       // the same, if it attends
  const Peer* peer = nullptr;
  std::vector<float> k, v, out;
  FlashCall flash;
  int calls = 1;

  Contestant(const Shape& shape, const BenchOptions& options) {
    if (!shape.attends()) {
      ours = make_timed(shape, options);
      return;
    }
    auto own = std::make_unique<Problem>(shape, options.seed, options.threads);
    problem = own.get(), ours = std::move(own);
  }

  int threads() const { return ours->threads(); }

  void set_peer(const Peer* p) {
    peer = p;
    const Shape& s = problem->shape();
    const auto* queries = reinterpret_cast<const float*>(problem->call().q.data);
    k = problem->plain_keys(0), v = problem->plain_values(0);
    out.resize(static_cast<size_t>(problem->call().out.numel()));
    flash = {.q = queries,
             .k = k.data(),
             .v = v.data(),
             .out = out.data(),
             .q_len = s.q_len,
             .kv_len = s.kv_len,
             .num_qo_heads = s.num_qo_heads,
             .num_kv_heads = s.num_kv_heads,
             .head_dim = s.head_dim_qk,
             .sm_scale = problem->call().params.sm_scale,
             .threads = problem->threads()};
  }

  Status call() {
    if (peer == nullptr) return ours->run();
    peer->attention(flash);
    return {};
  }

  Status check() {
    if (peer == nullptr) return ours->check();
    const TensorView& shaped = problem->call().out;
    return problem->check(ConstTensorView(out.data(), DType::kF32,
                                          {shaped.shape[0], shaped.shape[1], shaped.shape[2]}),
                          kComposedFlash);
  }

  void pin() const { ours->starts_threads() ? unpin() : pin_team(threads()); }

  /// Before it is timed: is its result right, and how many calls are long enough? *why: what the
  /// findings are about.
  Status prepare(std::string* why) {
    pin();
    Status status = call();
    *why = "is refused, see the findings";
    if (!status.ok()) return status;
    status = check();
    *why = "has a wrong result, see the findings";
    if (!status.ok()) return status;
    const double seconds = time() * ours->items();
    calls = std::clamp(static_cast<int>(std::ceil(kLeastSeconds / seconds)), 1, kMostCalls);
    return {};
  }

  /// Seconds of one item.
  double time() {
    pin();
    // What stays in cache is there before the time counts.
    if (ours->hot()) call_checked();
    const double start = now();
    for (int i = 0; i < calls; ++i) call_checked();
    return (now() - start) / calls / ours->items();
  }
  /// A call that was accepted once is accepted always.
  void call_checked() {
    const Status status = call();
    if (!status.ok()) throw std::logic_error(status.to_string());
  }
};

Status Bench::make_contestants(const Row& row, std::vector<Contestant>* contestants,
                               std::string* why) {
  const auto add = [&](Shape shape) -> Contestant& {
    if (options_.arith == Arith::kFast) shape.fast_arith = true;
    return contestants->emplace_back(shape, options_);
  };
  add(row.shape);
  for (const Base& base : row.of.bases) add(base.shape);
  if (row.of.measure == Measure::kPeer) add(row.shape).set_peer(options_.find_peer(row.of.peer));
  for (size_t i = 0; i < contestants->size(); ++i) {
    Status status = (*contestants)[i].prepare(why);
    if (status.ok()) continue;
    *why = fmt::format("{} {}", i == 0 ? "the call" : other_name(row, i), *why);
    return status;
  }
  return {};
}

Rounds Bench::measure(int threads, int rounds, std::vector<Contestant>& contestants) {
  probes_.settle(threads);
  bool forward = false;
  const auto one = [&] {
    // Every other round the other way round: a drift within a round then cancels.
    forward = !forward;
    Round round;
    round.seconds.resize(contestants.size());
    if (forward) round.probes = probes_.measure(threads);
    for (size_t i = 0; i < contestants.size(); ++i) {
      const size_t which = forward ? i : contestants.size() - 1 - i;
      round.seconds[which] = contestants[which].time();
    }
    if (!forward) round.probes = probes_.measure(threads);
    return round;
  };
  const RoundsOptions options{rounds, kTriesPerRound * rounds, threads, options_.stop};
  const bool crowded =
      std::ranges::any_of(contestants, [](const Contestant& c) { return c.ours->is_crowded(); });
  return run_rounds(options, history_, one, crowded ? contention_of_others : contention);
}

void Bench::fill_figures(const Row& row, const std::vector<Round>& rounds, BenchRow* out) {
  const ProbeFigures probes = medians_of(rounds);
  for (const Probe probe : kAllProbes) {
    if (probes[index_of(probe)])
      out->probes.emplace_back(name_of(probe), *probes[index_of(probe)] * 1e-9);
  }
  const double seconds = median_of(rounds, [](const Round& r) { return r.seconds[0]; });
  out->ms = seconds * 1e3;
  if (!row.shape.judges()) {
    out->gbps = kv_bytes_of(row.shape) / seconds * 1e-9;
    out->gflops = flop_of(row.shape) / seconds * 1e-9;
  }
  for (size_t i = 1; i < rounds[0].seconds.size(); ++i) {
    const double ms = median_of(rounds, [i](const Round& r) { return r.seconds[i] * 1e3; });
    out->others_ms.emplace_back(other_name(row, i), ms);
  }
  std::vector<double> ratios;
  for (const Round& round : rounds) {
    const auto ratio = ratio_of(row, round.probes, round.seconds);
    if (ratio) ratios.push_back(*ratio);
  }
  if (!ratios.empty()) {
    const Quartiles q = quartiles(std::move(ratios));
    out->ratio = q.median, out->low = q.low, out->high = q.high;
  }
  out->void_reason = void_reason(row, rounds, probes_.facts(out->threads));
}

Status Bench::run(const Row& row, BenchReport* report) {
  const bool fast = row.shape.fast_arith || options_.arith == Arith::kFast;
  BenchRow& out = report->rows.emplace_back();
  out.shape = row.id, out.text = row.text, out.of = row.of_name();
  if (row.of.goal > 0) out.goal = row.of.goal;
  out.at_most = row.at_most();
  out.dtype = name_of(row.shape.dtype), out.arith = fast ? "fast" : "portable";
  out.isa = row.shape.isa.empty() ? current_isa() : row.shape.isa;
  out.threads = row.shape.threads > 0 ? row.shape.threads : options_.threads;
  out.void_reason = why_not(row);
  if (!out.void_reason.empty()) return {};
  std::vector<Contestant> contestants;
  std::string why;
  Status status = make_contestants(row, &contestants, &why);
  if (!status.ok()) {
    add_case(status, out.shape, command(row, options_));
    out.void_reason = why;
    return status;
  }
  const Rounds rounds = measure(out.threads, options_.rounds, contestants);
  out.rounds = static_cast<int>(rounds.rounds.size());
  out.quiet = rounds.quiet;
  out.interrupted = rounds.stopped;
  out.rejected = rounds.rejected;
  if (rounds.rounds.empty()) {
    out.void_reason = "interrupted before its first round";
    return {};
  }
  fill_figures(row, rounds.rounds, &out);
  out.reached = out.void_reason.empty() && out.quiet && out.ratio && is_reached(row, *out.ratio);
  return {};
}

Status Bench::run(const Series& series, std::vector<SeriesPoint>* points) {
  const Peer* peer = series.peer.empty() ? nullptr : options_.find_peer(series.peer);
  if (!series.peer.empty() && (peer == nullptr || !peer->missing().empty())) return {};
  for (const Shape& shape : series.shapes) {
    if (stopped()) break;
    Contestant c(shape, options_);
    if (peer != nullptr) c.set_peer(peer);
    std::string why;
    Status status = c.prepare(&why);
    if (!status.ok()) {
      const std::string id =
          fmt::format("{} {}, length {}", series.panel, series.name, shape.kv_len);
      add_case(status, id, command(rows()[0], options_) + " --plot .");
      return status;
    }
    std::vector<double> seconds;
    for (int i = 0; i < kSeriesRounds; ++i) seconds.push_back(c.time());
    history_.add(c.threads(), probes_.measure(c.threads()));
    const Probe limit = shape.is_decode()  ? Probe::kStreamRead
                        : shape.fast_arith ? Probe::kBf16Peak
                                           : Probe::kFmaPeak;
    const ProbeFigures medians = history_.medians(c.threads());
    const bool is_limit = limit_below_floor(limit, medians, probes_.facts(c.threads())).empty();
    const double work = counts_bytes(limit) ? kv_bytes_of(shape) : flop_of(shape);
    points->push_back({shape.kv_len, median(seconds) * 1e3,
                       is_limit ? work / *limit_of(limit, medians) * 1e3 : 0});
  }
  return {};
}

std::vector<BenchProbe> Bench::probes() {
  std::vector<BenchProbe> list;
  for (const int threads : history_.threads()) {
    const ProbeFigures medians = history_.medians(threads);
    const ProbeFacts& facts = probes_.facts(threads);
    for (const Probe probe : kAllProbes) {
      BenchProbe& p = list.emplace_back();
      p.name = name_of(probe);
      p.threads = threads;
      p.variant = facts.choices[index_of(probe)].variant;
      p.void_reason = below_floor(probe, medians, facts);
      const auto& figure = medians[index_of(probe)];
      if (figure) (counts_bytes(probe) ? p.gbps : p.gflops) = *figure * 1e-9;
    }
  }
  return list;
}

}  // namespace shadowgraph::bench
