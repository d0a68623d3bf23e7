#include "topics.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "backends/fill/buffer_rows.h"
#include "check/runner.h"
#include "check/traces/trace_names.h"
#include "conformance/records.h"
#include "core/laws.h"
#include "core/refs.h"
#include "faults/faults.h"
#include "fuzz/features.h"
#include "io/recorded/form_fields.h"
#include "listings.h"

namespace shadowgraph::cli {
namespace {

using Parts = std::vector<std::pair<const char*, std::string>>;

std::string text_of(std::string_view id, std::string_view kind, std::string_view sentence,
                    const Parts& parts) {
  std::string s = fmt::format("{} ({})\n\n{}\n", id, kind, sentence);
  for (const auto& [label, value] : parts) {
    if (!value.empty()) s += fmt::format("\n{}: {}\n", label, value);
  }
  return s;
}

/// The rows of a listing whose cell in that column is the id.
Listing rows_of(Listing listing, size_t column, std::string_view id) {
  std::erase_if(listing.rows, [&](const auto& row) { return row[column] != id; });
  return listing;
}

Topic topic_of(const Law& law) {
  const std::string id(law.id), severity = name_of(law.severity), refs(law.refs), mend(law.mend),
                                runs(law.judged_in);
  return {id,
          text_of(id, severity, law.sentence,
                  {{"How to mend it", mend}, {"It is judged in", runs}, {"It stands on", refs}}),
          {"invariants",
           {"id", "severity", "law", "mend", "judged in", "refs"},
           {{id, severity, std::string(law.sentence), mend, runs, refs}}}};
}

/// "sparse.*": the laws whose ids begin so.
void add_families(std::vector<Topic>* topics) {
  const Listing all = list_laws("laws");
  std::map<std::string, Listing> families;
  for (const auto& row : all.rows) {
    const auto [family, is_new] =
        families.try_emplace(row[0].substr(0, row[0].find('.')) + ".*", all);
    if (is_new) family->second.rows.clear();
    family->second.rows.push_back(row);
  }
  for (auto& [id, laws] : families) {
    std::string text = text_of(id, "family of laws", "Laws:", {});
    for (const auto& row : laws.rows) text += fmt::format("  {}: {}\n", row[0], row.back());
    topics->push_back({id, text, std::move(laws)});
  }
}

/// Who cites a reference.
struct Referrers {
  std::set<std::string> laws, fields, faults;

  Parts parts() const {
    return {{"Laws that stand on it", fmt::format("{}", fmt::join(laws, ", "))},
            {"Fields that stand on it", fmt::format("{}", fmt::join(fields, ", "))},
            {"Faults that stand on it", fmt::format("{}", fmt::join(faults, ", "))}};
  }
};
using AllReferrers = std::map<std::string, Referrers, std::less<>>;

AllReferrers all_referrers() {
  AllReferrers all;
  const auto add = [&](std::string_view refs, std::set<std::string> Referrers::*list,
                       const std::string& name) {
    while (!refs.empty()) {
      const size_t end = std::min(refs.find(' '), refs.size());
      (all[std::string(refs.substr(0, end))].*list).insert(name);
      refs.remove_prefix(std::min(end + 1, refs.size()));
    }
  };
  for (const Law& law : kLaws) add(law.refs, &Referrers::laws, std::string(law.id));
  for (const Fault& fault : all_faults())
    add(fault.refs, &Referrers::faults, std::string(fault.id));
  for (const auto& row : list_fields("").rows)
    add(row[5], &Referrers::fields, row[0] + ' ' + row[1]);
  return all;
}

Topic topic_of(const Program& program, const AllReferrers& all) {
  constexpr const char* kRules[] = {
      "E: every device answers as the recorded GPU did",
      "S: the answer is one of a set that CUDA allows",
      "U: CUDA leaves it undefined, and the simulated device must diagnose it"};
  std::vector<std::string> names;
  for (const Variant& variant : variants_of(program)) names.push_back(variant.to_string());
  const std::string id(program.id), variants = fmt::format("{}", fmt::join(names, " ")),
                                    diagnosis(program.diagnosis);
  Parts parts = {{"Diagnosis", diagnosis}, {"Variants", variants}};
  if (const auto by = all.find("graph." + id); by != all.end())
    std::ranges::copy(by->second.parts(), std::back_inserter(parts));
  return {id,
          text_of(id, program.title, kRules[static_cast<size_t>(program.verdict)], parts),
          {"programs",
           {"id", "class", "title", "variants", "diagnosis"},
           {{id, std::string(name_of(program.verdict)), std::string(program.title), variants,
             diagnosis}}}};
}

/// Those whose wrong outputs are this mistake's.
std::vector<std::string> faults_of(std::string_view mistake) {
  std::vector<std::string> ids;
  for (const Fault& fault : all_faults())
    if (fault.is_seen_as(mistake)) ids.emplace_back(fault.id);
  return ids;
}

Topic topic_of(const Fault& fault) {
  const std::string id(fault.id);
  return {id,
          text_of(id, "fault", fmt::format("{}.", fault.title),
                  {{"What notices it",
                    fault.tap == nullptr ? "" : fmt::format("shadowgraph faults --id {}", id)},
                   {"Not planted, for", std::string(fault.why_not)},
                   {"Its wrong outputs are", std::string(fault.mistakes)},
                   {"It stands on", std::string(fault.refs)}}),
          rows_of(list_faults(), 0, id)};
}

/// A row of the list: what a diagnosis tries, what findings of metadata name, or both.
Topic topic_of_mistake(const std::vector<std::string>& row) {
  const std::string &id = row[0], &sentence = row[1], &hint = row[2];
  const bool tried = !sentence.empty();
  return {id,
          text_of(id, "mistake", fmt::format("{}.", tried ? sentence : hint),
                  {{"In metadata", tried ? hint : ""},
                   {"What names it",
                    tried ? "shadowgraph check FILE --diagnose" : "shadowgraph check FILE"},
                   {"Faults that make it", fmt::format("{}", fmt::join(faults_of(id), " "))},
                   {"It stands on", row[3]}}),
          rows_of(list_mistakes(), 0, id)};
}

/// "cu_seqlens_k in decode, idle: a decode kernel is told lengths alone", a line each.
std::string dead_buffers(const BackendInfo& info) {
  std::string all;
  for (const BufferInfo& row : info.buffers) {
    if (row.dead.empty() || row.recorded.empty()) continue;
    std::vector<std::string_view> dead, live;
    for (const ForwardMode mode : info.modes)
      (is_dead_in(row, mode) ? dead : live).push_back(name_of(mode));
    all += fmt::format(
        "\n  {}{}: {}", row.recorded,
        dead.empty() || live.empty() ? "" : fmt::format(" in {}", fmt::join(dead, ", ")), row.dead);
  }
  return all;
}

/// The allocations that its graphs share, one line each.
std::string graph_storage_of(const BackendInfo& info) {
  std::string lines;
  const auto add = [&](std::string_view buffers, const std::string& of, std::string_view why) {
    lines += fmt::format("\n  {}: one for {}{}", buffers, of, why);
  };
  bool all = false;
  for (const GraphStorage& row : info.graph_storage) {
    std::vector<std::string_view> modes;
    for (const ForwardMode mode : row.modes)
      if (std::ranges::count(info.modes, mode) > 0) modes.push_back(name_of(mode));
    const bool every = std::ranges::count_if(info.modes, is_captured) == std::ssize(modes);
    all = row.buffers.empty();
    add(all ? "all others" : fmt::format("{}", fmt::join(row.buffers, " ")),
        (modes.empty() ? "each mode"
         : every       ? "all modes"
                       : fmt::format("{}", fmt::join(modes, " "))) +
            (row.by_rows ? ", in each bucket" : ""),
        fmt::format(" ({})", row.why));
  }
  if (!all) add(lines.empty() ? "each buffer" : "all others", "each mode", "");
  return lines;
}

Topic topic_of(const Backend& backend) {
  const std::string id(backend.info().name);
  Listing listing = rows_of(list_backends(), 0, id);
  const std::vector<std::string> row = listing.rows.at(0);
  const std::string fields = fmt::format("{}", fmt::join(names_of_fields(backend.info()), " "));
  return {id,
          text_of(id, "backend", row[3] + '.',
                  {{"Modes", row[1]},
                   {"Page sizes", row[2]},
                   {"Engine", std::string(backend.info().engine->name)},
                   {"Allocations of its graphs", graph_storage_of(backend.info())},
                   {"Fields of traces", fields},
                   {"No kernel reads", dead_buffers(backend.info())}}),
          std::move(listing)};
}

/// The conventions, each with what it says.
Topic topic_of(const Engine& engine) {
  const std::string id(engine.name);
  Listing listing = rows_of(list_engines(), 0, id);
  const std::vector<std::string> row = listing.rows.at(0);
  std::string conventions, backends;
  for (size_t i = 1; i + 1 < row.size(); ++i) {
    const auto* const key = std::ranges::find(kTraceKeys, listing.columns[i], &TraceKey::name);
    conventions += fmt::format("\n  {}: {} ({})", listing.columns[i], row[i], key->what);
  }
  for (const Backend* b : all_backends())
    if (b->info().engine->name == id)
      backends += (backends.empty() ? "" : " ") + std::string(b->info().name);
  return {id,
          text_of(id, "engine", fmt::format("{}.", engine.about),
                  {{"Conventions, which `config` of a trace's line can change", conventions},
                   {"Backends", backends}}),
          std::move(listing)};
}

Topic topic_of(const TraceMode& mode) {
  const std::string id(mode.name);
  Listing listing = rows_of(list_modes(), 0, id);
  std::vector<std::string> served;
  const bool cross = mode.name.starts_with("cross_");
  for (const Backend* b : all_backends()) {
    if (cross && !b->info().encoder) continue;
    if (std::ranges::count(b->info().modes, mode.mode) > 0) served.emplace_back(b->info().name);
  }
  return {id,
          text_of(id, "mode", fmt::format("A step: {}.", mode.what),
                  {{"In graphs", listing.rows.at(0)[3].empty() ? "no" : "yes"},
                   {"seq_lens in traces", listing.rows.at(0)[4]},
                   {"Other keys that its traces need", listing.rows.at(0)[5]},
                   {"Backends", fmt::format("{}", fmt::join(served, " "))}}),
          std::move(listing)};
}

Topic topic_of_field(const std::string& name) {
  Listing listing = list_fields("", name);
  std::string rows;
  for (const auto& row : listing.rows)
    rows += fmt::format("\n  {}: {}, {}{}{}{}{}", row[0], row[2], row[3],
                        row[4].empty() ? "" : "; laws ", row[4], row[5].empty() ? "" : "; refs ",
                        row[5]);
  return {name,
          text_of(name, "field of traces", "Recorded metadata, judged by what the twin makes.",
                  {{"Judged", rows}}),
          std::move(listing)};
}

Topic topic_of(const TraceKey& key) {
  Listing listing = list_keys();
  std::erase_if(listing.rows,
                [&](const auto& row) { return row[0] != key.of || row[1] != key.name; });
  return {
      std::string(key.name),
      text_of(key.name, fmt::format("key of traces, in {}", key.of == "line" ? "the line" : key.of),
              fmt::format("{}.", key.what), {{"Value", std::string(key.value)}}),
      std::move(listing)};
}

/// The members and tensors of that name, of each form of recordings.
Topic topic_of_recorded(std::string_view name) {
  Listing listing = list_keys();
  std::erase_if(listing.rows, [&](const auto& row) {
    return row[1] != name || !row[0].starts_with("recording ");
  });
  std::string forms;
  for (const auto& row : listing.rows)
    forms += fmt::format("\n  {}: {}; {}", row[0].substr(row[0].find(' ') + 1), row[2], row[3]);
  return {std::string(name),
          text_of(name, "key of recordings", "A member or tensor of a recorded case.",
                  {{"In the forms", forms}, {"Three files to copy", "docs/recordings.md"}}),
          std::move(listing), true};
}

/// The forms of recordings, each with its names.
void add_forms(std::vector<Topic>* topics) {
  std::map<std::string, Listing> forms;
  const Listing all = list_keys();
  for (const auto& row : all.rows) {
    std::string_view words = row[0];
    if (!words.starts_with("recording ")) continue;
    while (words.find(' ') != words.npos) {
      words.remove_prefix(words.find(' ') + 1);
      Listing& form = forms
                          .try_emplace(std::string(words.substr(0, words.find(' '))),
                                       Listing{all.kind, all.columns, {}})
                          .first->second;
      form.rows.push_back(row);
    }
  }
  for (auto& [name, form] : forms) {
    std::string names;
    for (const auto& row : form.rows)
      names += fmt::format("\n  {}: {}; {}", row[1], row[2], row[3]);
    topics->push_back(
        {name,
         text_of(name, "form of recordings", "A kind of recorded case.",
                 {{"Its names", names}, {"Three files to copy", "docs/recordings.md"}}),
         std::move(form), true});
  }
}

/// The page on recordings, and all their keys.
Topic topic_of_recordings() {
  Listing listing = list_keys();
  std::erase_if(listing.rows, [](const auto& row) { return !row[0].starts_with("recording "); });
  return {"recordings",
          text_of("recordings", "page",
                  "What an attention kernel was given and what it returned: safetensors files that "
                  "`shadowgraph check` holds against float64.",
                  {{"Three files to copy, in numpy and from torch", "docs/recordings.md"},
                   {"All names", "shadowgraph list keys"},
                   {"How a kernel computes", "shadowgraph list arithmetics"}}),
          std::move(listing)};
}

/// A listing whose rows are a name, and in that column its sentence.
void add_rows(const Listing& listing, const char* kind, size_t column, std::string_view before,
              std::vector<Topic>* topics) {
  for (const auto& row : listing.rows)
    topics->push_back({row[0],
                       text_of(row[0], kind, fmt::format("{}{}.", before, row[column]), {}),
                       {listing.kind, listing.columns, {row}}});
}

/// "histories topk", also as "topk".
void add_feature(const FuzzFeature& f, std::vector<Topic>* topics) {
  const bool calls = f.name.starts_with("calls ");
  const std::string sentence =
      fmt::format("Some random {} have it: {}.", calls ? "calls of kernels" : "histories", f.what);
  const std::string text =
      text_of(f.name, "feature", sentence,
              {{"Backends that serve it", fmt::format("{}", fmt::join(f.backends, " "))},
               {"How many cases had it", "shadowgraph fuzz --format json, in \"features\""}});
  const Listing listing = rows_of(list_features(), 0, f.name);
  topics->push_back({f.name, text, listing});
  topics->push_back({f.name.substr(f.name.find(' ') + 1), text, listing, true});
}

Topic topic_of_reference(const std::string& id, std::string_view sentence, const Referrers& by) {
  const Parts parts = by.parts();
  return {id,
          text_of(id, "reference", sentence, parts),
          {"references",
           {"id", "what", "laws", "fields", "faults"},
           {{id, std::string(sentence), parts[0].second, parts[1].second, parts[2].second}}}};
}

/// "sglang#26512" or "mini-sglang@14157d5"; empty if it is no link.
std::string sentence_of_link(std::string_view link) {
  const size_t mark = link.find_first_of("#@");
  const auto* repository =
      std::ranges::find(kRepositories, link.substr(0, mark), &Repository::name);
  if (mark == link.npos || repository == std::end(kRepositories)) return "";
  const std::string_view number = link.substr(mark + 1);
  const bool commit = link[mark] == '@';
  return fmt::format("{} {} of {}: https://github.com/{}/{}/{}",
                     commit ? "Commit" : "Issue or pull request", number, repository->name,
                     repository->path, commit ? "commit" : "issues", number);
}

}  // namespace

std::vector<Topic> all_topics() {
  std::vector<Topic> topics;
  const AllReferrers referrers = all_referrers();
  for (const Law& law : kLaws) topics.push_back(topic_of(law));
  add_families(&topics);
  for (const Program& program : programs()) {
    topics.push_back(topic_of(program, referrers));
    topics.push_back(topic_of(program, referrers));
    topics.back().id.insert(0, "graph.");
  }
  for (const Fault& fault : all_faults()) topics.push_back(topic_of(fault));
  for (const auto& row : list_mistakes().rows) topics.push_back(topic_of_mistake(row));
  for (const Backend* backend : all_backends()) topics.push_back(topic_of(*backend));
  for (const Engine& engine : kEngines) topics.push_back(topic_of(engine));
  for (const TraceMode& mode : kTraceModes) topics.push_back(topic_of(mode));
  std::set<std::string> fields;
  for (const auto& row : list_fields("").rows) fields.insert(row[1]);
  for (const std::string& field : fields) topics.push_back(topic_of_field(field));
  for (const TraceKey& key : kTraceKeys) topics.push_back(topic_of(key));
  topics.push_back(topic_of_recordings());
  std::set<std::string_view> recorded;
  for (const FormField& field : kFormFields)
    if (recorded.insert(field.name).second) topics.push_back(topic_of_recorded(field.name));
  for (const Reference& r : kReferences) {
    const auto by = referrers.find(r.id);
    topics.push_back(topic_of_reference(std::string(r.id), what_it_says(r),
                                        by == referrers.end() ? Referrers{} : by->second));
  }
  for (const auto& [link, by] : referrers) {
    const std::string sentence = sentence_of_link(link);
    if (!sentence.empty()) topics.push_back(topic_of_reference(link, sentence, by));
  }
  add_rows(list_kernels(), "kernel", 1, "", &topics);
  add_rows(list_grids(), "grid", 2, "Small steps or programs, one after the other: ", &topics);
  add_rows(list_arithmetics(), "arithmetic", 1, "The error bound counts: ", &topics);
  add_forms(&topics);
  for (const FuzzFeature& feature : describe_features()) add_feature(feature, &topics);
  for (const auto& row : list_targets().rows)
    topics.push_back(
        {row[0],
         text_of(row[0], "target", "An instruction set that the kernels are compiled for.", {}),
         {"targets", list_targets().columns, {row}}});
  return topics;
}

}  // namespace shadowgraph::cli
