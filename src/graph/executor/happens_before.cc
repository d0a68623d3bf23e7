#include "graph/executor/happens_before.h"

#include <algorithm>
#include <utility>

namespace shadowgraph {

namespace {

bool is_chain(const ExecBody& body) {
  for (size_t i = 1; i < body.order.size(); ++i)
    if (!body.ordered(body.order[i - 1], body.order[i])) return false;
  return true;
}

NodeRunId parent_of(const NodeRunId& id) { return {id.run->parent, id.run->node}; }

}  // namespace

std::shared_ptr<const BodyRun> make_body_run(std::shared_ptr<const ExecBody> body,
                                             std::shared_ptr<const BodyRun> parent, int32_t node,
                                             int32_t iteration) {
  const bool chain = (parent == nullptr || parent->chain) && is_chain(*body);
  const int32_t depth = parent == nullptr ? 0 : parent->depth + 1;
  return std::make_shared<const BodyRun>(
      BodyRun{std::move(body), std::move(parent), node, iteration, depth, chain});
}

bool is_not_after(const NodeRunId& a, const NodeRunId& b) {
  NodeRunId x = a, y = b;
  while (x.run->depth > y.run->depth) x = parent_of(x);
  while (y.run->depth > x.run->depth) y = parent_of(y);
  while (x.run != y.run) {
    if (x.run->parent == nullptr) return false;  // not of one operation
    const bool same_node = x.run->parent == y.run->parent && x.run->node == y.run->node;
    if (same_node) return x.run->iteration < y.run->iteration;
    x = parent_of(x), y = parent_of(y);
  }
  return x.node == y.node || x.run->body->ordered(x.node, y.node);
}

bool Clock::covers(const Position& p, const NodeRunId& node) const {
  if (covers(p)) return true;
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const Point& point) {
    return point.position.lane == p.lane && point.position.tick == p.tick &&
           is_not_after(node, point.node);
  });
}

void Clock::add(const Position& p) {
  if (p.lane >= ticks_.size()) ticks_.resize(p.lane + 1);
  ticks_[p.lane] = std::max(ticks_[p.lane], p.tick);
}

void Clock::add(const Clock& other) {
  if (other.ticks_.size() > ticks_.size()) ticks_.resize(other.ticks_.size());
  for (size_t i = 0; i < other.ticks_.size(); ++i) ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
  if (nodes_.empty() && other.nodes_.empty()) return;
  std::erase_if(nodes_, [&](const Point& p) { return covers(p.position); });
  for (const Point& p : other.nodes_)
    if (!covers(p.position, p.node)) nodes_.push_back(p);
}

void Clock::intersect(const Clock& other) {
  for (size_t i = 0; i < ticks_.size(); ++i) ticks_[i] = std::min(ticks_[i], other.tick(i));
  nodes_.clear();
}

bool Ordering::is_before(const Position& p, const NodeRunId& x, const NodeRunId& y) const {
  if (before.covers(p, x)) return true;
  return std::any_of(joins.begin(), joins.end(), [&](const Join& join) {
    return is_not_after(join.node, y) && join.clock.covers(p, x);
  });
}

Clock Ordering::end() const {
  Clock clock = before;
  for (const Join& join : joins) clock.add(join.clock);
  clock.add(position);
  return clock;
}

Clock Ordering::end_of(const NodeRunId& node) const {
  Clock clock = before;
  for (const Join& join : joins)
    if (is_not_after(join.node, node)) clock.add(join.clock);
  clock.add(position, node);
  return clock;
}

}  // namespace shadowgraph
