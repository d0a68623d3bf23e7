#include "campaign/campaign.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

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

std::string body_of(Report report) {
  report.seconds = 0, report.threads = 0, report.isa.clear();
  for (FaultReport& fault : report.faults) fault.seconds = 0;
  RenderOptions options;
  options.format = Format::kJson;
  options.max_findings = std::numeric_limits<size_t>::max();
  return render(report, options);
}

std::string packed(const RangeResult& result) {
  std::string bytes;
  put(result.body, &bytes);
  for (const auto& [law, text] : result.failures) put(law, &bytes), put(text, &bytes);
  return bytes;
}

RangeResult unpacked(const std::string& bytes) {
  RangeResult result;
  size_t at = 0;
  result.body = take(bytes, &at);
  while (at < bytes.size()) {
    std::string law = take(bytes, &at);
    result.failures.emplace_back(std::move(law), take(bytes, &at));
  }
  return result;
}

}  // namespace shadowgraph
