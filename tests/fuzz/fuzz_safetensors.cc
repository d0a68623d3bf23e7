// Whatever the bytes: no crash, no sanitizer report; and what is accepted survives being written
// and read again.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "io/recorded/recorded_cases.h"
#include "io/safetensors.h"

using namespace shadowgraph;

namespace {

const std::string kName = "fuzz";

void require(bool condition) {
  if (!condition) std::abort();
}

/// Every case of the file is read, left out, or has findings, and it is only one of the three. A
/// finding of the file itself leaves nothing.
void require_each_case_once(const SafetensorsFile& file, const Status& status,
                            const std::vector<RecordedCase>& cases,
                            const std::vector<SkippedCase>& skipped) {
  std::set<std::string> bad, others;
  for (const Finding& f : status.findings()) {
    if (f.case_id == kName) return require(cases.empty() && skipped.empty());
    require(f.case_id.starts_with(kName + "#"));
    bad.insert(f.case_id.substr(kName.size() + 1));
  }
  for (const RecordedCase& v : cases) require(!bad.contains(v.id) && others.insert(v.id).second);
  for (const SkippedCase& s : skipped) require(!bad.contains(s.id) && others.insert(s.id).second);
  others.merge(bad);
  require(others == case_ids(file));
}

bool same(const ConstTensorView& a, const ConstTensorView& b) {
  if (a.dtype != b.dtype || a.rank != b.rank || a.shape != b.shape || a.stride != b.stride)
    return false;
  return a.numel() == 0 ||
         std::memcmp(a.data, b.data, static_cast<size_t>(a.numel()) * size_of(a.dtype)) == 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* first = reinterpret_cast<const std::byte*>(data);
  const auto bytes = std::make_shared<const std::vector<std::byte>>(first, first + size);
  SafetensorsFile file;
  if (!parse_safetensors(bytes, kName, &file).ok()) return 0;

  std::vector<std::byte> written;
  require(serialize_safetensors(file.tensors, file.metadata, &written).ok());
  SafetensorsFile again;
  require(parse_safetensors(std::make_shared<const std::vector<std::byte>>(std::move(written)),
                            "again", &again)
              .ok());
  require(again.metadata == file.metadata && again.tensors.size() == file.tensors.size());
  for (const auto& [name, view] : file.tensors) {
    const auto at = again.tensors.find(name);
    require(at != again.tensors.end() && same(view, at->second));
  }

  std::vector<RecordedCase> cases;
  std::vector<SkippedCase> skipped;
  const Status status = parse_recorded_cases(file, kName, &cases, &skipped);
  require_each_case_once(file, status, cases, skipped);
  return 0;
}
