// Buffers of metadata, as `explain` says them: by the name that a finding has, or by the engine's.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "backends/fill/buffer_rows.h"
#include "check/traces/trace_names.h"
#include "fuzz/history/bound_buffers.h"
#include "topics.h"

namespace shadowgraph::cli {
namespace {

const char* words_of(Lifetime lifetime) {
  switch (lifetime) {
    case Lifetime::kConstant: return "written once, at bind";
    case Lifetime::kPerStep: return "written by every fill";
    case Lifetime::kScratch: return "written by a launch of each step";
    case Lifetime::kPersistent: return "written at any time";
    case Lifetime::kOutput: return "written by launches, for the host";
  }
  return "";
}

/// Its own, and the engine's: "local_table", "local.block_table", "block_table".
std::set<std::string> names_of(const BoundBuffer& buffer) {
  std::set<std::string> names = {buffer.name};
  for (const BufferInfo* row : buffer.rows) {
    if (row->recorded.empty()) continue;
    names.emplace(row->recorded);
    names.emplace(row->recorded.substr(row->recorded.rfind('.') + 1));
  }
  return names;
}

std::string lifetimes_of(const BoundBuffer& buffer) {
  std::string words;
  for (const Lifetime lifetime : buffer.lifetimes)
    words += (words.empty() ? "" : ", or ") + std::string(words_of(lifetime));
  return words;
}

std::string modes_of(const BoundBuffer& buffer) {
  std::vector<std::string_view> names;
  for (const ForwardMode mode : buffer.modes) names.push_back(name_of(mode));
  return fmt::format("{}", fmt::join(names, " "));
}

/// The kernels; of a buffer that none is given, why not.
std::string readers_of(const BoundBuffer& buffer) {
  std::string readers = fmt::format("{}", fmt::join(buffer.kernels, " "));
  for (const BufferInfo* row : buffer.rows)
    if (buffer.kernels.empty() && !row->dead.empty())
      return fmt::format("no kernel: {}", row->dead);
  return readers.empty() ? "no kernel; the host or a law" : readers;
}

std::string laws_of(const BoundBuffer& buffer) {
  for (const BufferInfo* row : buffer.rows)
    if (row->shape != FieldShape::kNone) return shadowgraph::laws_of(*row);
  return "";
}

}  // namespace

std::vector<Topic> buffer_topics() {
  const std::vector<BoundBuffer> buffers = bound_buffers(all_backends());
  std::map<std::string, std::vector<const BoundBuffer*>> by_name;
  for (const BoundBuffer& buffer : buffers)
    for (const std::string& name : names_of(buffer)) by_name[name].push_back(&buffer);
  std::vector<Topic> topics;
  for (auto& [name, all] : by_name) {
    std::stable_partition(all.begin(), all.end(),
                          [&own = name](const BoundBuffer* b) { return b->name == own; });
    Topic& topic = topics.emplace_back();
    topic.id = name, topic.besides = true;
    topic.text = fmt::format(
        "{} (buffer)\n\nMetadata that a backend binds on the device.\n\nBound by:", name);
    topic.listing = {
        "buffers", {"name", "backend", "buffer", "lifetime", "modes", "read by", "laws"}, {}};
    for (const BoundBuffer* b : all) {
      const std::string backend(b->backend->info().name),
          lifetime = lifetimes_of(*b), modes = modes_of(*b), readers = readers_of(*b),
          laws = laws_of(*b);
      topic.listing.rows.push_back({name, backend, b->name, lifetime, modes, readers, laws});
      topic.text += fmt::format("\n  {}{}, {}\n    in       {}\n    read by  {}\n", backend,
                                b->name == name ? "" : " as " + b->name, lifetime, modes, readers);
      if (!laws.empty()) topic.text += fmt::format("    laws     {}\n", laws);
    }
  }
  return topics;
}

}  // namespace shadowgraph::cli
