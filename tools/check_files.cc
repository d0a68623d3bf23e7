#include "check_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "io/file.h"

namespace shadowgraph::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlock = 1024, kLongestLine = size_t{1} << 20;

/// The first bytes of a regular file, or more of them: its first line. A FIFO would block.
std::string start_of(const std::string& path, bool whole_line = false) {
  std::error_code unreadable;
  if (!fs::is_regular_file(path, unreadable)) return "";
  std::string start;
  std::ifstream file(path, std::ios::binary);
  size_t read = 0;
  do {
    read = start.size();
    start.resize(read + kBlock);
    file.read(start.data() + read, static_cast<std::streamsize>(kBlock));
    start.resize(read + static_cast<size_t>(file.gcount()));
  } while (whole_line && file && start.find('\n', read) == std::string::npos &&
           start.size() < kLongestLine);
  return start;
}

bool looks_like_work(const fs::directory_entry& entry) {
  std::error_code unreadable;
  if (entry.is_directory(unreadable)) return false;
  if (entry.path().extension() == ".safetensors") return true;
  return entry.path().extension() == ".jsonl" &&
         start_of(entry.path().string(), true).find("\"backend\"") != std::string::npos;
}

}  // namespace

bool matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

WorkKind kind_of(const std::string& path) {
  if (path == "-" || path.ends_with(".jsonl") || path.ends_with(".json")) return WorkKind::kTraces;
  if (path.ends_with(".safetensors")) return WorkKind::kVectors;
  const std::string start = start_of(path);
  if (start.empty()) return WorkKind::kVectors;  // whose reader says what is wrong with it
  if (start.starts_with("\x1f\x8b")) return WorkKind::kTraces;
  // The length of a header, before it, has zeros.
  if (start.substr(0, 8).find('\0') != std::string::npos) return WorkKind::kVectors;
  const size_t first = start.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  const bool json = first != std::string::npos && (start[first] == '{' || start[first] == '[');
  return json ? WorkKind::kTraces : WorkKind::kNone;
}

Finding about_path(LawId law, const std::string& path, std::string expected, std::string got) {
  Finding finding = make_finding(law, at("path"), std::move(expected), std::move(got));
  finding.case_id = path;
  return finding;
}

std::vector<std::string> files_below(const std::string& folder, Status* status) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator it(folder, error);
  for (; !error && it != fs::end(it); it.increment(error)) {
    if (looks_like_work(*it)) files.push_back(it->path().string());
  }
  if (error) status->add(about_path("io.open", folder, "a readable folder", error.message()));
  if (!error && files.empty()) {
    status->add(about_path("io.kind", folder,
                           "*.safetensors, or *.jsonl of engine traces, in it or below", "none"));
  }
  std::sort(files.begin(), files.end());
  return files;
}

CaseReport report_of(const std::string& id, const RecordedCase& recorded,
                     const RecordedVerdict& verdict) {
  CaseReport c;
  c.id = id;
  c.kind = verdict.kind;
  c.dtype = shadowgraph::name_of(recorded.dtype);
  c.error_over_bound = verdict.ours.out;
  c.lse_error_over_bound = verdict.ours.lse;
  c.twin_error_over_bound = verdict.twin.out;
  c.twin_lse_error_over_bound = verdict.twin.lse;
  c.gpu_error_over_bound = verdict.gpu.out;
  c.gpu_lse_error_over_bound = verdict.gpu.lse;
  if (verdict.kernel_accepted) c.kernel = *verdict.kernel_accepted ? "accepted" : "not accepted";
  c.marked_rows = verdict.marked_rows;
  c.notes = verdict.notes;
  c.known_wrong = verdict.known_wrong;
  if (verdict.unbounded_rows > 0)
    c.notes.push_back(std::to_string(verdict.unbounded_rows) + " rows without a bound");
  return c;
}

Status Waivers::read(const std::string& path) {
  path_ = path;
  std::vector<std::byte> bytes;
  Status status = read_file(path, &bytes);
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.find('\0') != std::string_view::npos) {
    status.add(file_finding("io.waiver", path, "file", "text", "bytes that are none"));
    return status;
  }
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    constexpr const char* kBlank = " \t\r";
    line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
    line = line.substr(0, line.find_last_not_of(kBlank) + 1);
    if (line.empty() || line.front() == '#') continue;
    const size_t pattern = line.find_first_of(kBlank);
    const size_t reason = line.find_first_not_of(kBlank, std::min(pattern, line.size()));
    if (reason == std::string_view::npos) {
      status.add(file_finding("io.waiver", path, "waiver", "a pattern and its reason",
                              '"' + printable(line) + '"'));
      status.findings().back().where.row = number;
      continue;
    }
    waivers_.push_back(
        {std::string(line.substr(0, pattern)), std::string(line.substr(reason)), number});
  }
  return status;
}

void Waivers::apply(Finding* finding) {
  for (Waiver& waiver : waivers_) {
    if (!matches(waiver.pattern, finding->id) && !matches(waiver.pattern, finding->case_id) &&
        !matches(waiver.pattern, finding->id + '@' + finding->case_id))
      continue;
    waiver.used = true;
    if (finding->waived.empty()) finding->waived = waiver.reason;
  }
}

std::vector<PassedOver> Waivers::unused() const {
  std::vector<PassedOver> lines;
  for (const Waiver& waiver : waivers_) {
    if (waiver.used) continue;
    lines.push_back(
        {"waiver.unused", path_,
         "line " + std::to_string(waiver.line) + ", " + waiver.pattern + ": waives nothing", 1,
         waiver.line});
  }
  return lines;
}

void Passing::add(std::string_view law, const std::string& what, int64_t line) {
  const PassedOver first{std::string(law), path_, what, 0, line};
  ++by_words_.try_emplace({what, first.law}, first).first->second.count;
}

void Passing::add(const LeftOut& field, int64_t line) {
  const bool unread = field.law == LawId("unread.field").law().id;
  const std::string what = (unread ? "not read, " : "left out, ") + field.to_string() +
                           (unread ? "; nothing to mend" : "");
  add(field.law, what, line);
  PassedOver& entry = by_words_.at({what, std::string(field.law)});
  entry.field = field.name, entry.why = field.why;
}

std::vector<PassedOver> Passing::of_lines() const {
  std::vector<PassedOver> all;
  for (const auto& [words, entry] : by_words_) {
    all.push_back(entry);
    all.back().what +=
        " (" + std::to_string(entry.count) + (entry.count == 1 ? " line)" : " lines)");
  }
  return all;
}

}  // namespace shadowgraph::cli
