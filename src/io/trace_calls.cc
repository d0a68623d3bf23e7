#include "io/trace_calls.h"

#include <algorithm>
#include <utility>

namespace shadowgraph {
namespace {

constexpr std::string_view kRagged = "ragged";

// An engine has one wrapper for eager steps, and one for each bucket of its graphs.
constexpr std::pair<std::string_view, std::string_view> kWrappers[] = {
    {"decode_wrappers", "decode"},
    {"decode_cuda_graph_metadata", "decode"},
    {"prefill_wrappers_paged", "paged"},
    {"prefill_wrappers_verify", "paged"},
    {"prefill_cuda_graph_metadata", "paged"},
    {"draft_extend_cuda_graph_metadata", "paged"},
    {"prefill_wrapper_ragged", kRagged},
};

std::string text_of(const JsonValue& call, const char* key) {
  const JsonValue* v = call.find(key);
  const auto* s = v == nullptr ? nullptr : v->as<std::string>();
  return s == nullptr ? "" : *s;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string wrapper_role(std::string_view wrapper) {
  const std::string_view stem = wrapper.substr(0, wrapper.find('['));
  const auto* const known =
      std::ranges::find(kWrappers, stem, &std::pair<std::string_view, std::string_view>::first);
  if (known == std::end(kWrappers)) return "";
  const std::string role(known->second);
  if (role == kRagged) return stem == wrapper ? role : "";
  // The last number is the wrapper's; one before it is the bucket's.
  const size_t open = wrapper.rfind('[');
  if (open == std::string_view::npos || !wrapper.ends_with(']')) return "";
  const std::string_view number = wrapper.substr(open + 1, wrapper.size() - open - 2);
  if (number.empty() || !std::ranges::all_of(number, is_digit)) return "";
  return role + '[' + std::string(number) + ']';
}

const JsonValue::Array* as_calls(const JsonValue& value) {
  const auto* list = value.as<JsonValue::Array>();
  const auto is_call = [](const JsonValue& v) {
    return v.as<JsonValue::Object>() != nullptr && !text_of(v, "wrapper").empty() &&
           !text_of(v, "call").empty();
  };
  return list != nullptr && std::ranges::all_of(*list, is_call) ? list : nullptr;
}

std::vector<TraceCall> name_calls(const JsonValue::Array& calls) {
  std::vector<TraceCall> named;
  int ragged = 0;
  for (const JsonValue& call : calls) {
    TraceCall c{text_of(call, "wrapper"), "", text_of(call, "call")};
    c.name = wrapper_role(c.wrapper);
    if (c.name == kRagged) c.name += '[' + std::to_string(ragged++) + ']';
    for (TraceCall& before : named) {
      if (before.name == c.name) before.name.clear();
    }
    named.push_back(std::move(c));
  }
  return named;
}

}  // namespace shadowgraph
