// The table of `bench --peers`: one call after another, ours and each peer's, medians over rounds
// of one run. Tested by tests/bench/peer_table_test.cc.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/peer.h"
#include "bench/run_rows.h"
#include "report/report.h"

namespace shadowgraph::bench {

struct TablePeer {
  std::string name;
  std::function<bool(const sg_peer_call&)> attention;  // false: no such call
};

/// A shared library that has what bench/peer.h says. Empty, and *why set: it is none.
std::optional<TablePeer> load_peer(const std::string& path, std::string* why);
/// OpenBLAS and Eigen, f32 only. *notes: why one of them is not here.
std::vector<TablePeer> composed_peers(std::vector<std::string>* notes);

/// Times of a peer in a process of its own, by rows.
struct PeerTimes {
  std::string name;
  int64_t threads = 0;
  std::map<std::string, double> ms;
};
/// Reads what bench/peer_torch.py prints. Not ok: io.open, io.report.
Status read_peer_times(const std::string& path, PeerTimes* times);

/// Rows of decode, prefill and extend whose call every library can make of dense tensors.
bool is_plain(const Row& row);

struct PeerRow {
  std::string id;
  double ours_ms = 0;
  std::vector<std::string> peers_ms;  // a figure, "-" (no such call) or "wrong"
  bool quiet = false;
};

struct PeerTable {
  std::vector<std::string> peers;  // columns
  std::vector<PeerRow> rows;
  std::vector<std::string> notes;  // what is absent, what was not quiet, what is wrong
};

/// Runs the rows. Findings: results of ours that are wrong; a peer's are "wrong" and a note.
Status measure_peers(const std::vector<const Row*>& rows, const std::vector<TablePeer>& peers,
                     const std::vector<PeerTimes>& times, const BenchOptions& options,
                     PeerTable* table);

/// The table with the columns row, ours, and for each peer its ms and how many times ours that is.
Listing to_listing(const PeerTable& table);
/// The same as Markdown, with notes. heading: machine, threads and date.
std::string to_markdown(const PeerTable& table, const std::string& heading);

}  // namespace shadowgraph::bench
