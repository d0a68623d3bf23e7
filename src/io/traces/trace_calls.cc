#include "io/traces/trace_calls.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>
#include <utility>

namespace shadowgraph {
namespace {

constexpr std::string_view kRagged = "ragged";

// An engine has one wrapper for eager steps, and one for each bucket of its graphs.
struct Wrapper {
  std::string_view stem, role;
  bool graph = false;
};
constexpr Wrapper kWrappers[] = {
    {"decode_wrappers", "decode"},
    {"decode_cuda_graph_metadata", "decode", true},
    {"prefill_wrappers_paged", "paged"},
    {"prefill_wrappers_verify", "paged"},
    {"prefill_cuda_graph_metadata", "paged", true},
    {"draft_extend_cuda_graph_metadata", "paged", true},
    {"prefill_wrapper_ragged", kRagged},
};

std::string text_of(const JsonValue& call, const char* key) {
  const JsonValue* v = call.find(key);
  const auto* s = v == nullptr ? nullptr : v->as<std::string>();
  return s == nullptr ? "" : *s;
}

/// "[8][1]" is {8, 1}; nullopt: no numbers in brackets.
std::optional<std::vector<int64_t>> numbers_of(std::string_view text) {
  std::vector<int64_t> numbers;
  while (!text.empty()) {
    const size_t close = text.find(']');
    if (text[0] != '[' || close == std::string_view::npos) return {};
    const std::string_view number = text.substr(1, close - 1);
    const char* const end = number.data() + number.size();
    int64_t n = -1;
    const auto [rest, fault] = std::from_chars(number.data(), end, n);
    if (fault != std::errc() || rest != end || n < 0) return {};
    numbers.push_back(n);
    text.remove_prefix(close + 1);
  }
  return numbers;
}

}  // namespace

WrapperRole wrapper_role(std::string_view wrapper) {
  const std::string_view stem = wrapper.substr(0, wrapper.find('['));
  const auto* const known = std::ranges::find(kWrappers, stem, &Wrapper::stem);
  const auto numbers = numbers_of(wrapper.substr(stem.size()));
  if (known == std::end(kWrappers) || !numbers) return {};
  const std::string role(known->role);
  if (role == kRagged) return {numbers->empty() ? role : ""};
  if (numbers->size() != (known->graph ? 2U : 1U)) return {};
  return {role + '[' + std::to_string(numbers->back()) + ']', known->graph ? (*numbers)[0] : 0};
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
    const std::string wrapper = text_of(call, "wrapper");
    const WrapperRole role = wrapper_role(wrapper);
    TraceCall c{wrapper, role.name, text_of(call, "call"), role.bucket};
    if (c.name == kRagged) c.name += '[' + std::to_string(ragged++) + ']';
    for (TraceCall& before : named) {
      if (before.name == c.name) before.name.clear();
    }
    named.push_back(std::move(c));
  }
  return named;
}

}  // namespace shadowgraph
