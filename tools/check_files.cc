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

/// The start of a file, as far as a trace's first members go.
bool begins_with_a_trace(const std::string& path) {
  std::string start(1024, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<size_t>(file.gcount()));
  return start.find("\"backend\"") != std::string::npos;
}

bool looks_like_work(const fs::directory_entry& entry) {
  std::error_code unreadable;
  if (entry.is_directory(unreadable)) return false;
  if (entry.path().extension() == ".safetensors") return true;
  // A FIFO would block.
  return is_trace_file(entry.path().string()) && entry.is_regular_file(unreadable) &&
         begins_with_a_trace(entry.path().string());
}

/// * stands for any text.
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

}  // namespace

bool is_trace_file(const std::string& path) { return path.ends_with(".jsonl"); }

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

Status Waivers::read(const std::string& path) {
  std::vector<std::byte> bytes;
  Status status = read_file(path, &bytes);
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
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
      status.add(file_finding("io.line", path, "waiver", "a pattern and its reason",
                              '"' + printable(line) + '"'));
      status.findings().back().where.row = number;
      continue;
    }
    waivers_.emplace_back(line.substr(0, pattern), line.substr(reason));
  }
  return status;
}

void Waivers::apply(Finding* finding) const {
  for (const auto& [pattern, reason] : waivers_) {
    if (!matches(pattern, finding->id) && !matches(pattern, finding->case_id) &&
        !matches(pattern, finding->id + '@' + finding->case_id))
      continue;
    finding->waived = reason;
    return;
  }
}

}  // namespace shadowgraph::cli
