#include "backends/compose/children.h"

#include <utility>

namespace shadowgraph {

ChildBinder::ChildBinder(const Backend& backend, const Arena& arena, const Limits& limits) {
  meta_.backend = &backend;
  meta_.limits = limits;
  meta_.arena = arena;
}

void ChildBinder::bind(const Backend& child, std::string_view scope, const Limits& limits) {
  Meta meta;
  Status status = child.bind(meta_.arena.scope(scope), limits, &meta);
  if (status.ok()) meta_.children.push_back(std::move(meta));
  status_.add(std::move(status));
}

Status ChildBinder::finish(Meta* meta) {
  if (status_.ok()) {
    *meta = std::move(meta_);
  } else {
    for (Meta& child : meta_.children) child.arena.unbind();
  }
  return std::move(status_);
}

}  // namespace shadowgraph
