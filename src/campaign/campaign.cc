#include "campaign/campaign.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

#include "report/merge.h"

namespace shadowgraph {
namespace {

void put(const std::string& text, std::string* bytes) {
  const uint64_t size = text.size();
  bytes->append(reinterpret_cast<const char*>(&size), sizeof size);
  *bytes += text;
}

/// The text at *at; empty where the bytes end before.
std::string take(const std::string& bytes, size_t* at) {
  uint64_t size = 0;
  if (bytes.size() - *at < sizeof size) return *at = bytes.size(), "";
  std::memcpy(&size, bytes.data() + *at, sizeof size);
  *at += sizeof size;
  const size_t begin = *at;
  *at += std::min<size_t>(size, bytes.size() - begin);
  return bytes.substr(begin, *at - begin);
}

}  // namespace

CampaignRange range_of(const Campaign& campaign, uint64_t number) {
  CampaignRange r;
  r.corpus = number < campaign.corpus_ranges();
  r.first = (r.corpus ? number : number - campaign.corpus_ranges()) * campaign.range;
  const uint64_t end = r.corpus             ? campaign.corpus.size()
                       : campaign.cases > 0 ? campaign.cases
                                            : std::numeric_limits<uint64_t>::max();
  assert(r.first < end);
  r.count = std::min(campaign.range, end - r.first);
  return r;
}

std::string body_of(Report report, size_t most_of_a_law) {
  Merge merge({.checks_parts = false, .most_of_a_law = most_of_a_law});
  merge.add("", std::move(report));
  (void)merge.end(false, &report);
  report.seconds = 0, report.threads = 0, report.isa.clear();
  for (FaultReport& fault : report.faults) fault.seconds = 0;
  RenderOptions options;
  options.format = Format::kJson;
  options.max_findings = std::numeric_limits<size_t>::max();
  return render(report, options);
}

std::string packed(std::span<const std::string> texts) {
  std::string bytes;
  for (const std::string& text : texts) put(text, &bytes);
  return bytes;
}

std::vector<std::string> unpacked_texts(const std::string& bytes) {
  std::vector<std::string> texts;
  for (size_t at = 0; at < bytes.size();) texts.push_back(take(bytes, &at));
  return texts;
}

std::string packed(const RangeResult& result) {
  std::vector<std::string> texts = {result.body};
  for (const auto& [law, text] : result.failures) texts.push_back(law), texts.push_back(text);
  return packed(texts);
}

RangeResult unpacked(const std::string& bytes) {
  std::vector<std::string> texts = unpacked_texts(bytes);
  RangeResult result;
  if (!texts.empty()) result.body = std::move(texts[0]);
  for (size_t i = 1; i + 1 < texts.size(); i += 2)
    result.failures.emplace_back(std::move(texts[i]), std::move(texts[i + 1]));
  return result;
}

}  // namespace shadowgraph
