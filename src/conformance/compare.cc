#include "conformance/compare.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

namespace shadowgraph {
namespace {

/// Q04 asks for the order in which cudaGraphGetNodes lists a captured graph.
constexpr std::string_view kInsertionOrder = "Q04";

template <class T>
std::string list_of(const std::vector<T>& items) {
  std::string s = "[";
  for (const T& item : items) {
    if (s.size() > 1) s += ", ";
    if constexpr (std::is_same_v<T, std::string>) {
      s += item;
    } else {
      s += std::to_string(item);
    }
  }
  return s + ']';
}

std::string text_of(const GraphDump& dump) {
  if (dump.null) return "null";
  std::string s = list_of(dump.order);
  for (const auto& [from, to] : dump.edges) {
    s += ' ' + std::to_string(from) + "->" + std::to_string(to);
  }
  for (const auto& [edge, from_port, to_port, type] : dump.edge_data) {
    s += " edge " + std::to_string(edge) + " data " + list_of<int32_t>({from_port, to_port, type});
  }
  return s;
}

class Comparison {
 public:
  Comparison(const Record& got, const Record& recorded) : got_(got), recorded_(recorded) {}

  std::vector<Difference> run() {
    compare_steps();
    compare_lists("status", got_.capture_status, recorded_.capture_status);
    compare_graphs();
    compare_buffers();
    compare_maps("buffer error ", got_.buffer_errors, recorded_.buffer_errors,
                 [](int32_t error) { return std::to_string(error); });
    compare_maps("fact ", named(got_.facts), named(recorded_.facts),
                 [](const Fact& fact) { return to_string(fact); });
    if (is_unclean(got_.facts) != is_unclean(recorded_.facts)) {
      add("context afterwards", is_unclean(got_.facts) ? "unclean" : "clean",
          is_unclean(recorded_.facts) ? "unclean" : "clean");
    }
    if (got_.host_calls != recorded_.host_calls) {
      add("host_calls", std::to_string(got_.host_calls), std::to_string(recorded_.host_calls));
    }
    if (got_.complete != recorded_.complete) {
      add("complete", got_.complete ? "true" : "false", recorded_.complete ? "true" : "false");
    }
    return std::move(differences_);
  }

 private:
  void add(std::string field, std::string got, std::string recorded) {
    differences_.push_back({std::move(field), std::move(got), std::move(recorded)});
  }

  /// How a recorder found out that the context was left unusable is its own business (unclean_*);
  /// that it was is not.
  static bool is_unclean(const std::map<std::string, Fact>& facts) {
    return std::any_of(facts.begin(), facts.end(),
                       [](const auto& fact) { return fact.first.starts_with("unclean_"); });
  }
  static std::map<std::string, Fact> named(std::map<std::string, Fact> facts) {
    std::erase_if(facts, [](const auto& fact) { return fact.first.starts_with("unclean_"); });
    return facts;
  }

  void compare_steps() {
    const size_t both = std::min(got_.steps.size(), recorded_.steps.size());
    for (size_t i = 0; i < both; ++i) {
      const RecordedStep &g = got_.steps[i], &r = recorded_.steps[i];
      const std::string step = "step " + std::to_string(i + 1);
      // What follows another call is another program.
      if (g.call != r.call) return add(step, g.call, r.call);
      const std::string field = step + ' ' + g.call;
      const auto text = [](const std::string& s) { return s.empty() ? "none" : s; };
      const auto number = [](const RecordedStep& s) {
        return s.ret ? std::to_string(*s.ret) : "none";
      };
      if (g.ret != r.ret) add(field + " ret", number(g), number(r));
      if (g.out != r.out) add(field + " out", text(g.out), text(r.out));
      const auto thread = [](const RecordedStep& s) { return s.thread_b ? "B" : "A"; };
      if (g.thread_b != r.thread_b) add(field + " thread", thread(g), thread(r));
    }
    if (got_.steps.size() == recorded_.steps.size()) return;
    add("steps", std::to_string(got_.steps.size()), std::to_string(recorded_.steps.size()));
  }

  void compare_lists(const std::string& name, const std::vector<std::string>& got,
                     const std::vector<std::string>& recorded) {
    for (size_t i = 0; i < std::max(got.size(), recorded.size()); ++i) {
      const std::string g = i < got.size() ? got[i] : "none";
      const std::string r = i < recorded.size() ? recorded[i] : "none";
      if (g != r) add(name + ' ' + std::to_string(i + 1), g, r);
    }
  }

  void compare_graphs() {
    const bool in_order = recorded_.id == kInsertionOrder;
    for (size_t i = 0; i < std::max(got_.graphs.size(), recorded_.graphs.size()); ++i) {
      const GraphDump* g = i < got_.graphs.size() ? &got_.graphs[i] : nullptr;
      const GraphDump* r = i < recorded_.graphs.size() ? &recorded_.graphs[i] : nullptr;
      const std::string field = "dump " + std::to_string(i + 1);
      if (g == nullptr || r == nullptr) {
        add(field, g ? text_of(*g) : "none", r ? text_of(*r) : "none");
      } else if (g->label != r->label) {
        add(field + " label", g->label, r->label);
      } else if (!(in_order ? is_identical(*g, *r) : is_isomorphic(*g, *r))) {
        add("graph " + g->label, text_of(*g), text_of(*r));
      }
    }
  }

  void compare_buffers() {
    for (const auto& [name, r] : recorded_.buffers) {
      const auto it = got_.buffers.find(name);
      if (it == got_.buffers.end()) {
        add("buffer " + name, "none", list_of(r));
      } else if (it->second.size() != r.size()) {
        add("buffer " + name, list_of(it->second), list_of(r));
      } else {
        const auto [g_at, r_at] = std::mismatch(it->second.begin(), it->second.end(), r.begin());
        if (r_at == r.end()) continue;
        const std::string index = std::to_string(r_at - r.begin());
        add("buffer " + name + '[' + index + ']', std::to_string(*g_at), std::to_string(*r_at));
      }
    }
    for (const auto& [name, g] : got_.buffers) {
      if (!recorded_.buffers.contains(name)) add("buffer " + name, list_of(g), "none");
    }
  }

  template <class T, class Text>
  void compare_maps(const std::string& kind, const std::map<std::string, T>& got,
                    const std::map<std::string, T>& recorded, const Text& text) {
    for (const auto& [name, r] : recorded) {
      const auto it = got.find(name);
      if (it == got.end()) {
        add(kind + name, "none", text(r));
      } else if (it->second != r) {
        add(kind + name, text(it->second), text(r));
      }
    }
    for (const auto& [name, g] : got) {
      if (!recorded.contains(name)) add(kind + name, text(g), "none");
    }
  }

  const Record &got_, &recorded_;
  std::vector<Difference> differences_;
};

struct Label {
  std::string_view name;                  // "memcpy", "kernel:fill"
  std::optional<std::string_view> value;  // "7"
};

Label split(std::string_view label) {
  const size_t first = label.find(':'), last = label.rfind(':');
  if (first == last) return {label, {}};
  return {label.substr(0, last), label.substr(last + 1)};
}

bool agree(std::string_view a, std::string_view b) {
  const Label x = split(a), y = split(b);
  return x.name == y.name && (!x.value || !y.value || *x.value == *y.value);
}

/// What connects two nodes: the data of the edges from one to the other.
using Edges = std::map<std::pair<int32_t, int32_t>, std::multiset<std::array<int32_t, 3>>>;

Edges edges_of(const GraphDump& dump) {
  std::vector<std::array<int32_t, 3>> data(dump.edges.size());
  for (const auto& [edge, from_port, to_port, type] : dump.edge_data) {
    data[edge] = {from_port, to_port, type};
  }
  Edges edges;
  for (size_t i = 0; i < dump.edges.size(); ++i) edges[dump.edges[i]].insert(data[i]);
  return edges;
}

/// Looks for the map node by node, taking back what turns out wrong: graphs are small.
class Isomorphism {
 public:
  Isomorphism(const GraphDump& a, const GraphDump& b)
      : a_(a), b_(b), edges_a_(edges_of(a)), edges_b_(edges_of(b)), used_(b.order.size()) {}

  bool exists() { return edges_a_.size() == edges_b_.size() && extend(); }

  bool is_identity() {
    for (size_t i = 0; i < a_.order.size(); ++i) {
      if (!agree(a_.order[i], b_.order[i])) return false;
    }
    return edges_a_ == edges_b_;
  }

 private:
  bool extend() {
    const auto next = static_cast<int32_t>(map_.size());
    if (map_.size() == a_.order.size()) return true;
    for (int32_t image = 0; image < static_cast<int32_t>(b_.order.size()); ++image) {
      if (used_[image] || !fits(next, image)) continue;
      used_[image] = true;
      map_.push_back(image);
      if (extend()) return true;
      map_.pop_back();
      used_[image] = false;
    }
    return false;
  }

  bool fits(int32_t node, int32_t image) const {
    if (!agree(a_.order[node], b_.order[image])) return false;
    for (int32_t other = 0; other <= node; ++other) {
      const int32_t there = other == node ? image : map_[other];
      if (between(edges_a_, node, other) != between(edges_b_, image, there) ||
          between(edges_a_, other, node) != between(edges_b_, there, image)) {
        return false;
      }
    }
    return true;
  }

  static std::multiset<std::array<int32_t, 3>> between(const Edges& edges, int32_t from,
                                                       int32_t to) {
    const auto it = edges.find({from, to});
    return it == edges.end() ? std::multiset<std::array<int32_t, 3>>() : it->second;
  }

  const GraphDump &a_, &b_;
  const Edges edges_a_, edges_b_;
  std::vector<int32_t> map_;  // of a's nodes so far
  std::vector<bool> used_;    // of b's nodes
};

bool have_equal_sizes(const GraphDump& a, const GraphDump& b) {
  return a.null == b.null && a.order.size() == b.order.size() && a.edges.size() == b.edges.size();
}

}  // namespace

std::string Difference::to_string() const { return field + ": " + got + ", recorded " + recorded; }

std::vector<Difference> compare(const Record& got, const Record& recorded) {
  return Comparison(got, recorded).run();
}

std::string to_string(const Fact& fact) {
  if (const bool* flag = std::get_if<bool>(&fact)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<int64_t>(&fact)) return std::to_string(*number);
  return std::get<std::string>(fact);
}

bool is_isomorphic(const GraphDump& a, const GraphDump& b) {
  return have_equal_sizes(a, b) && Isomorphism(a, b).exists();
}

bool is_identical(const GraphDump& a, const GraphDump& b) {
  return have_equal_sizes(a, b) && Isomorphism(a, b).is_identity();
}

}  // namespace shadowgraph
