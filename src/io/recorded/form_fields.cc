#include "io/recorded/form_fields.h"

#include <algorithm>

namespace shadowgraph {
namespace {

/// words: one space between two.
bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

}  // namespace

const FormField* find_form_field(std::string_view form, std::string_view name, bool tensor) {
  const auto find = [&](std::string_view wanted) {
    const auto* at = std::ranges::find_if(kFormFields, [&](const FormField& f) {
      return f.tensor == tensor && f.name == wanted && has_word(f.forms, form);
    });
    return at == std::end(kFormFields) ? nullptr : at;
  };
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  if (const FormField* exact = find(name); exact != nullptr || digits == name.size()) return exact;
  return find(std::string(name.substr(0, digits)) + 'N');
}

std::string meaning_of_member(std::string_view name) {
  const auto* const field = std::ranges::find_if(
      kFormFields, [&](const FormField& f) { return !f.tensor && f.name == name; });
  if (field == std::end(kFormFields)) return "present";
  return std::string(field->value.substr(0, field->value.find(';'))) + ": " +
         std::string(field->what);
}

std::vector<std::string> names_of_form_fields(std::string_view form, bool tensor) {
  std::vector<std::string> names;
  for (const FormField& f : kFormFields)
    if (f.tensor == tensor && has_word(f.forms, form)) names.emplace_back(f.name);
  return names;
}

}  // namespace shadowgraph
