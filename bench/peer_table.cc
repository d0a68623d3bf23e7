#include "bench/peer_table.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/problem.h"
#include "bench/team.h"
#include "core/float_formats.h"
#include "report/json_members.h"

namespace shadowgraph::bench {
namespace {

constexpr double kLeastSeconds = 0.015;  // of a contestant in a round: short calls are repeated
constexpr int kMostCalls = 10'000;
constexpr int kTriesPerRound = 3;

sg_peer_tensor tensor(void* data, int64_t requests, int64_t tokens, int64_t heads, int64_t dim) {
  return {data, {requests, tokens, heads, dim}, {tokens * heads * dim, heads * dim, dim, 1}};
}

int32_t peer_dtype(DType t) {
  return t == DType::kF32 ? SG_PEER_F32 : t == DType::kF16 ? SG_PEER_F16 : SG_PEER_BF16;
}

/// The tensors that peers get: the problem's queries, and its keys and values as dense tensors, so
/// many times that no cache holds them.
class DenseInputs {
 public:
  /// problem: has run, and its last call's keys are taken.
  explicit DenseInputs(const Problem& problem) : problem_(problem) {
    const Shape& s = problem.shape();
    const bool cold = s.is_decode();
    copies_ = cold ? static_cast<int64_t>(std::ceil(cold_memory().bytes / kv_bytes_of(s))) : 1;
    elements_ = int64_t{s.batch} * s.kv_len * s.num_kv_heads * s.head_dim_qk;
    k_ = dense(&Problem::plain_keys), v_ = dense(&Problem::plain_values);
    const ConstTensorView q = problem.call().q;
    const auto* bytes = static_cast<const std::byte*>(q.data);
    q_.assign(bytes, bytes + static_cast<size_t>(q.numel()) * size_of(s.dtype));
    out_.resize(static_cast<size_t>(problem.call().out.numel()) * size_of(s.dtype));
  }

  /// The call on the next copy.
  sg_peer_call next() {
    const Shape& s = problem_.shape();
    const auto at = static_cast<size_t>(next_ * elements_) * size_of(s.dtype);
    next_ = (next_ + 1) % copies_;
    sg_peer_call call;
    call.dtype = peer_dtype(s.dtype), call.threads = problem_.threads();
    call.sm_scale = problem_.call().params.sm_scale;
    call.q = tensor(q_.data(), s.batch, s.q_len, s.num_qo_heads, s.head_dim_qk);
    call.k = tensor(k_.data() + at, s.batch, s.kv_len, s.num_kv_heads, s.head_dim_qk);
    call.v = tensor(v_.data() + at, s.batch, s.kv_len, s.num_kv_heads, s.head_dim_vo);
    call.out = tensor(out_.data(), s.batch, s.q_len, s.num_qo_heads, s.head_dim_vo);
    return call;
  }

  void forget() { std::ranges::fill(out_, std::byte{0xff}); }
  Status check() const {
    const TensorView& ours = problem_.call().out;
    const DType t = problem_.shape().dtype;
    return problem_.check(
        ConstTensorView(out_.data(), t, {ours.shape[0], ours.shape[1], ours.shape[2]}),
        t == DType::kF32 ? kComposedFlash : *find_arithmetic("ours_fast"));
  }

 private:
  HugeMemory dense(std::vector<float> (Problem::*plain)(int32_t) const) const {
    const Shape& s = problem_.shape();
    const auto bytes = static_cast<size_t>(elements_) * size_of(s.dtype);
    HugeMemory memory(bytes * static_cast<size_t>(copies_));
    if (memory.empty()) throw std::bad_alloc();
    int64_t at = 0;
    for (int32_t request = 0; request < s.batch; ++request)
      for (const float x : (problem_.*plain)(request)) store_float(memory.data(), s.dtype, at++, x);
    for (int64_t copy = 1; copy < copies_; ++copy)
      std::memcpy(memory.data() + static_cast<size_t>(copy) * bytes, memory.data(), bytes);
    return memory;
  }

  const Problem& problem_;
  int64_t copies_ = 1, elements_ = 0, next_ = 0;
  HugeMemory k_, v_;
  std::vector<std::byte> q_, out_;
};

/// A call that is timed, and how often in a round.
struct Timed {
  std::function<void()> call;
  int calls = 1;

  double time() const {
    call();  // what a change of threads costs does not count
    const double start = now();
    for (int i = 0; i < calls; ++i) call();
    return (now() - start) / calls;
  }
  /// seconds: of one call.
  void calibrate(double seconds) {
    calls = std::clamp(static_cast<int>(std::ceil(kLeastSeconds / seconds)), 1, kMostCalls);
  }
};

/// A composed flash takes f32, one request at a time.
bool compose(const Peer& peer, const sg_peer_call& c) {
  if (c.dtype != SG_PEER_F32) return false;
  const auto part = [](const sg_peer_tensor& t, int64_t request) {
    return static_cast<float*>(t.data) + request * t.strides[0];
  };
  for (int64_t request = 0; request < c.q.sizes[0]; ++request) {
    peer.attention({.q = part(c.q, request),
                    .k = part(c.k, request),
                    .v = part(c.v, request),
                    .out = part(c.out, request),
                    .q_len = static_cast<int32_t>(c.q.sizes[1]),
                    .kv_len = static_cast<int32_t>(c.k.sizes[1]),
                    .num_qo_heads = static_cast<int32_t>(c.q.sizes[2]),
                    .num_kv_heads = static_cast<int32_t>(c.k.sizes[2]),
                    .head_dim = static_cast<int32_t>(c.q.sizes[3]),
                    .sm_scale = c.sm_scale,
                    .threads = c.threads});
  }
  return true;
}

Shape shape_of(const Row& row, const BenchOptions& options) {
  Shape shape = row.shape;
  shape.fast_arith |= options.arith == Arith::kFast;
  return shape;
}

/// One row of the table, measured.
class PeerRun {
 public:
  PeerRun(const Row& row, const BenchOptions& options)
      : row_(row),
        options_(options),
        problem_(shape_of(row, options), options.seed, options.threads) {}

  Status run(const std::vector<TablePeer>& peers, PeerTable* table) {
    pin_team(problem_.threads());
    Status status = problem_.run();
    if (status.ok()) status = problem_.check();
    for (Finding& f : status.findings()) f.case_id = fmt::format("bench {}", row_.id);
    if (!status.ok()) return status;
    PeerRow& out = table->rows.emplace_back();
    out.id = row_.id;
    DenseInputs inputs(problem_);
    std::vector<Timed> timed;
    timed.push_back({[this] { ours(); }});
    std::vector<size_t> columns;  // of timed, from 1 on
    for (size_t p = 0; p < peers.size(); ++p) {
      const std::string no = try_peer(peers[p], inputs, table);
      out.peers_ms.push_back(no);
      if (!no.empty()) continue;
      columns.push_back(p);
      timed.push_back({[&peer = peers[p], &inputs] { peer.attention(inputs.next()); }});
    }
    const std::vector<double> ms = medians(timed, &out.quiet);
    if (ms.empty()) return table->rows.pop_back(), status;
    out.ours_ms = ms[0];
    for (size_t i = 0; i < columns.size(); ++i)
      out.peers_ms[columns[i]] = fmt::format("{:.4g}", ms[i + 1]);
    return status;
  }

 private:
  void ours() {
    const Status status = problem_.run();
    if (!status.ok()) throw std::logic_error(status.to_string());
  }

  /// Empty, or what stands in the table instead of a figure.
  std::string try_peer(const TablePeer& peer, DenseInputs& inputs, PeerTable* table) const {
    inputs.forget();
    unpin();  // threads that the library makes are not to share our first one's processor
    if (!peer.attention(inputs.next())) return "-";
    const Status status = inputs.check();
    if (status.ok()) return "";
    table->notes.push_back(
        fmt::format("{} is wrong on {}: {}", peer.name, row_.id, status.findings()[0].to_string()));
    return "wrong";
  }

  /// The median of each, in ms; empty after Ctrl-C.
  std::vector<double> medians(std::vector<Timed>& timed, bool* quiet) const {
    const auto time = [&](size_t i) {
      if (i == 0) pin_team(problem_.threads());
      if (i > 0) unpin();
      return timed[i].time();
    };
    for (size_t i = 0; i < timed.size(); ++i) timed[i].calibrate(time(i));
    bool forward = false;
    ProbeHistory none;
    const Rounds rounds = run_rounds(
        {options_.rounds, kTriesPerRound * options_.rounds, problem_.threads(), options_.stop},
        none, [&] {
          forward = !forward;
          Round round;
          round.seconds.resize(timed.size());
          for (size_t i = 0; i < timed.size(); ++i) {
            const size_t which = forward ? i : timed.size() - 1 - i;
            round.seconds[which] = time(which);
          }
          return round;
        });
    *quiet = rounds.quiet;
    std::vector<double> ms;
    for (size_t i = 0; i < timed.size() && !rounds.rounds.empty(); ++i) {
      std::vector<double> seconds;
      for (const Round& round : rounds.rounds) seconds.push_back(round.seconds[i]);
      ms.push_back(1e3 * median(std::move(seconds)));
    }
    return ms;
  }

  const Row& row_;
  const BenchOptions& options_;
  Problem problem_;
};

std::string times_ours(const std::string& ms, double ours_ms) {
  const double figure = std::atof(ms.c_str());
  return figure > 0 ? fmt::format("{:.2f}", figure / ours_ms) : "";
}

}  // namespace

std::optional<TablePeer> load_peer(const std::string& path, std::string* why) {
  // Kept to the end: a library's threads outlive any call.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return *why = dlerror(), std::nullopt;
  const auto name = reinterpret_cast<decltype(&sg_peer_name)>(dlsym(library, "sg_peer_name"));
  const auto attention =
      reinterpret_cast<decltype(&sg_peer_attention)>(dlsym(library, "sg_peer_attention"));
  if (name == nullptr || attention == nullptr)
    return *why = path + " has no sg_peer_name and sg_peer_attention (bench/peer.h)", std::nullopt;
  return TablePeer{name(), [attention](const sg_peer_call& c) { return attention(&c) == 0; }};
}

std::vector<TablePeer> composed_peers(std::vector<std::string>* notes) {
  std::vector<TablePeer> peers;
  for (const char* name : {"openblas", "eigen"}) {
    const Peer* peer = find_peer(name);
    const std::string why = peer == nullptr ? "built without it" : peer->missing();
    if (why.empty()) {
      peers.push_back({name, [peer](const sg_peer_call& c) { return compose(*peer, c); }});
    } else {
      notes->push_back(fmt::format("{} is not here: {}", name, why));
    }
  }
  return peers;
}

Status read_peer_times(const std::string& path, PeerTimes* times) {
  std::vector<std::byte> bytes;
  Status status = read_file(path, &bytes);
  if (!status.ok()) return status;
  JsonDocument document;
  constexpr size_t kDepth = 3;
  status = parse_strict_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                             "io.report", path, 0, &document, kDepth);
  if (!status.ok()) return status;
  JsonMembers m(document.root, "", path, &status);
  m.need("peer", &times->name), m.count("threads", &times->threads);
  m.inside("ms", [&](JsonMembers& all) {
    all.others(
        [&](const std::string& row, const JsonValue&) { all.get(row.c_str(), &times->ms[row]); });
  });
  return status;
}

bool is_plain(const Row& row) {
  const Shape& s = row.shape;
  return row.of.measure == Measure::kProbe && s.layout == Layout::kPanels && s.kv_lens.empty() &&
         s.window_left < 0 && !s.tree_mask && !s.hot && s.attends() && s.isa.empty() &&
         s.threads == 0;
}

Status measure_peers(const std::vector<const Row*>& rows, const std::vector<TablePeer>& peers,
                     const std::vector<PeerTimes>& times, const BenchOptions& options,
                     PeerTable* table) {
  Status status;
  for (const TablePeer& peer : peers) table->peers.push_back(peer.name);
  for (const Row* row : rows) {
    if (options.stop != nullptr && options.stop->load()) break;
    status.add(PeerRun(*row, options).run(peers, table));
  }
  for (const PeerTimes& peer : times) {
    table->peers.push_back(peer.name);
    table->notes.push_back(
        fmt::format("{} ran in a process of its own, before these rows, on {} threads", peer.name,
                    peer.threads));
    for (PeerRow& row : table->rows) {
      const auto ms = peer.ms.find(row.id);
      row.peers_ms.push_back(ms == peer.ms.end() ? "-" : fmt::format("{:.4g}", ms->second));
    }
  }
  std::string loud;
  for (const PeerRow& row : table->rows)
    if (!row.quiet) loud += (loud.empty() ? "" : ", ") + row.id;
  if (!loud.empty()) table->notes.push_back("NOT QUIET, no figures to keep: " + loud);
  return status;
}

Listing to_listing(const PeerTable& table) {
  Listing listing{"peers", {"row", "ours, ms"}, {}};
  for (const std::string& peer : table.peers) {
    listing.columns.push_back(peer + ", ms");
    listing.columns.push_back(peer + " / ours");
  }
  for (const PeerRow& row : table.rows) {
    std::vector<std::string>& cells = listing.rows.emplace_back();
    cells = {row.id, fmt::format("{:.4g}", row.ours_ms)};
    for (const std::string& ms : row.peers_ms) {
      cells.push_back(ms);
      cells.push_back(times_ours(ms, row.ours_ms));
    }
  }
  return listing;
}

std::string to_markdown(const PeerTable& table, const std::string& heading) {
  const Listing listing = to_listing(table);
  const auto line = [](const std::vector<std::string>& cells) {
    return fmt::format("| {} |\n", fmt::join(cells, " | "));
  };
  std::string s = heading + "\n\n" + line(listing.columns);
  s += line(std::vector<std::string>(listing.columns.size(), "---"));
  for (const auto& row : listing.rows) s += line(row);
  for (const std::string& note : table.notes) s += "\n- " + note;
  return s + (table.notes.empty() ? "" : "\n");
}

}  // namespace shadowgraph::bench
