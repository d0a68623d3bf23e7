#include "io/traces/traces.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "io/file.h"
#include "io/strict_json.h"
#include "io/traces/trace_line.h"

namespace shadowgraph {
namespace {

constexpr size_t kMaxTraceDepth = 8;  // line, expect, calls, call, field, data, row

/// The JSON reader counts bytes, from 1 here: columns.
void in_line(size_t number, Finding* f) {
  constexpr std::string_view kByte = " at byte ";
  f->where.row = static_cast<int64_t>(number);
  if (f->where.field == "header") f->where.field = "line";
  const size_t byte = f->got.rfind(kByte);
  if (byte != std::string::npos) f->got.replace(byte, kByte.size(), " at column ");
}

/// how: what the text should be, where it is no JSON.
Status parse_line(std::string_view text, const std::string& name, size_t number, const char* how,
                  std::vector<TraceLine>* lines) {
  JsonDocument document;
  Status status = parse_strict_json(text, "io.line", name, 1, &document, kMaxTraceDepth);
  if (how != nullptr && !status.ok()) status.findings()[0].expected = how;
  TraceLine line;
  if (status.ok()) status = read_trace_line(document, name, number, &line);
  for (Finding& f : status.findings()) in_line(number, &f);
  if (status.ok()) lines->push_back(std::move(line));
  return status;
}

constexpr const char* kOneALine =
    "one object on each line, or a single one: jq -c . FILE, and of a list jq -c '.[]' FILE";
constexpr std::string_view kGzip = "\x1f\x8b";
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::string_view next_line(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

/// A list of objects, or one that goes on behind its first line.
bool is_spread(std::string_view text) {
  std::string_view first;
  while (!text.empty() && is_blank(first)) first = next_line(&text);
  const size_t last = first.find_last_not_of(" \t\r");
  if (last == std::string_view::npos) return false;
  const bool list = first[first.find_first_not_of(" \t\r")] == '[';
  return list ||
         (std::string_view("{,:[").find(first[last]) != std::string_view::npos && !is_blank(text));
}

/// A first line that is cut off looks as if it went on; then the next is an object by itself.
bool is_cut_off(std::string_view text, const std::string& name) {
  std::string_view first, second;
  while (!text.empty() && is_blank(first)) first = next_line(&text);
  while (!text.empty() && is_blank(second)) second = next_line(&text);
  JsonDocument next;
  const bool bracket = first.find_first_not_of(" \t\r{[") == std::string_view::npos;
  return !bracket && parse_strict_json(second, "io.line", name, 1, &next, kMaxTraceDepth).ok() &&
         next.root.as<JsonValue::Object>() != nullptr;
}

/// A line is named by its id: `--case`, findings and waivers mean one.
Status check_ids(const std::vector<TraceLine>& lines, const std::string& name) {
  Status status;
  std::map<std::string_view, size_t> first;
  for (const TraceLine& line : lines) {
    const auto [at, is_new] = first.try_emplace(line.id, line.line);
    if (is_new) continue;
    Finding f =
        file_finding("io.line", name, "id", "an id of its own",
                     '"' + printable(line.id) + "\", as line " + std::to_string(at->second));
    f.case_id = line.id;
    in_line(line.line, &f);
    status.add(std::move(f));
  }
  return status;
}

}  // namespace

Status parse_traces(std::string_view text, const std::string& name, std::vector<TraceLine>* lines) {
  return with_memory_findings(name, [&] {
    Status status;
    std::vector<TraceLine> read;
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    if (text.starts_with(kGzip)) {
      status.add(file_finding("io.kind", name, "file", "text: gzip -dc FILE | shadowgraph check -",
                              "a gzip archive"));
      return status;
    }
    if (is_spread(text)) {
      status = parse_line(text, name, 1, kOneALine, &read);
      if (status.ok() || !is_cut_off(text, name)) {
        text = {};
      } else {
        status = {};
      }
    }
    for (size_t number = 1; !text.empty(); ++number) {
      const std::string_view line = next_line(&text);
      if (!is_blank(line)) status.add(parse_line(line, name, number, nullptr, &read));
    }
    status.add(check_ids(read, name));
    if (read.empty() && status.ok())
      status.add(file_finding("io.kind", name, "file", "at least one line", "none"));
    lines->reserve(lines->size() + read.size());
    std::move(read.begin(), read.end(), std::back_inserter(*lines));
    return status;
  });
}

Status read_traces(const std::string& path, std::vector<TraceLine>* lines) {
  std::vector<std::byte> bytes;
  Status status = path == "-" ? read_stdin(&bytes) : read_file(path, &bytes);
  if (!status.ok()) return status;
  return parse_traces({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, lines);
}

}  // namespace shadowgraph
