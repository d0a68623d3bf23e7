#include "graph/executor/orders.h"

#include <vector>

namespace shadowgraph {

namespace {

class Orders {
 public:
  Orders(const ExecBody& body, const std::function<bool(int32_t, int32_t)>& conflicts,
         const std::function<bool(std::span<const int32_t>)>& visit)
      : body_(body), conflicts_(conflicts), visit_(visit), missing_(body.nodes.size()) {
    for (size_t i = 0; i < missing_.size(); ++i) missing_[i] = body.nodes[i].before.size();
  }

  /// False: stopped.
  bool extend() {
    const size_t n = body_.nodes.size();
    if (order_.size() == n) return visit_(order_);
    for (int32_t node = 0; node < static_cast<int32_t>(n); ++node) {
      if (missing_[static_cast<size_t>(node)] != 0 || could_have_come_earlier(node)) continue;
      place(node);
      const bool more = extend();
      take_back(node);
      if (!more) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kPlaced = ~size_t{0};

  /// placed: in the order already, so nothing that is not yet comes before it by edges.
  bool commute(int32_t placed, int32_t node) const {
    return !body_.ordered(placed, node) && !conflicts_(placed, node);
  }
  /// Before a node of higher ordinal, past nothing but what it commutes with: another order of the
  /// same class has it there.
  bool could_have_come_earlier(int32_t node) const {
    for (size_t i = order_.size(); i > 0 && commute(order_[i - 1], node); --i)
      if (order_[i - 1] > node) return true;
    return false;
  }
  void place(int32_t node) {
    order_.push_back(node);
    missing_[static_cast<size_t>(node)] = kPlaced;
    for (const int32_t next : body_.nodes[static_cast<size_t>(node)].after)
      --missing_[static_cast<size_t>(next)];
  }
  void take_back(int32_t node) {
    order_.pop_back();
    missing_[static_cast<size_t>(node)] = 0;
    for (const int32_t next : body_.nodes[static_cast<size_t>(node)].after)
      ++missing_[static_cast<size_t>(next)];
  }

  const ExecBody& body_;
  const std::function<bool(int32_t, int32_t)>& conflicts_;
  const std::function<bool(std::span<const int32_t>)>& visit_;
  std::vector<size_t> missing_;  // predecessors not placed
  std::vector<int32_t> order_;
};

}  // namespace

void for_each_order(const ExecBody& body, const std::function<bool(int32_t, int32_t)>& conflicts,
                    const std::function<bool(std::span<const int32_t>)>& visit) {
  Orders(body, conflicts, visit).extend();
}

}  // namespace shadowgraph
