// Happens-before: which runs of nodes are over before which others begin, whatever the schedule.
// Operations are compared by vector clocks, nodes of one operation by their graph's edges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "graph/capture/graph_store.h"

namespace shadowgraph {

/// One run of a body: an operation's, or one inside a node of another run.
struct BodyRun {
  std::shared_ptr<const ExecBody> body;
  std::shared_ptr<const BodyRun> parent;  // null: the operation's own
  int32_t node = -1;                      // of the parent
  int32_t iteration = 0;                  // of a WHILE node
  int32_t depth = 0;
  bool chain = false;  // here and in every parent each node is before the next one
};
std::shared_ptr<const BodyRun> make_body_run(std::shared_ptr<const ExecBody> body,
                                             std::shared_ptr<const BodyRun> parent, int32_t node,
                                             int32_t iteration);

/// One run of one node.
struct NodeRunId {
  std::shared_ptr<const BodyRun> run;
  int32_t node = -1;
};
/// Two node runs of one operation: is a before b, or the same, or one inside the other?
bool is_not_after(const NodeRunId& a, const NodeRunId& b);

/// An operation: the tick-th on its lane.
struct Position {
  size_t lane = 0;
  uint64_t tick = 0;
};

/// A set of work closed under "before": on each lane everything up to a tick, and of some more
/// operations one node and what is before it.
class Clock {
 public:
  uint64_t tick(size_t lane) const { return lane < ticks_.size() ? ticks_[lane] : 0; }
  bool covers(const Position& p) const { return p.tick <= tick(p.lane); }
  bool covers(const Position& p, const NodeRunId& node) const;
  void add(const Position& p);
  void add(const Position& p, const NodeRunId& node) { nodes_.push_back({p, node}); }
  void add(const Clock& other);
  /// What is in both, whole operations only.
  void intersect(const Clock& other);

 private:
  struct Point {
    Position position;
    NodeRunId node;
  };
  std::vector<uint64_t> ticks_;
  std::vector<Point> nodes_;
};

/// Where an operation stands: what is before it, and before parts of it.
struct Ordering {
  struct Join {  // an event-wait node: the clock is before what follows the node
    NodeRunId node;
    Clock clock;
  };
  Position position;
  Clock before;
  std::vector<Join> joins;

  /// Is x, a node of the operation at p, before this operation's node y?
  bool is_before(const Position& p, const NodeRunId& x, const NodeRunId& y) const;
  /// All that is done when the operation is, itself included.
  Clock end() const;
  /// All that is done when its node is.
  Clock end_of(const NodeRunId& node) const;
};

}  // namespace shadowgraph
