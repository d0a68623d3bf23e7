// The names of recorded cases: which members and tensors a form has, and what they say. Tested by
// tests/io/form_fields_test.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shadowgraph {

struct FormField {
  std::string_view forms;  // "fa2 fa3"
  std::string_view name;   // "q"; "slopesN" stands for slopes0, slopes1, ...
  bool tensor = false;     // else a member of the case's metadata
  // "integer; -1", "f32 [num_qo_heads]": type and shape, and what it is if it is not said
  std::string_view value;
  std::string_view what;

  /// A member that no reader needs: it says how the case was made.
  bool for_people() const { return value == "person"; }
};

inline constexpr FormField kFormFields[] = {
#define SG_FORM_MEMBER(forms, name, value, what) {forms, #name, false, value, what},
#include "io/recorded/form_fields.inc"
#undef SG_FORM_MEMBER
#define SG_FORM_TENSOR(forms, name, value, what) {forms, #name, true, value, what},
#include "io/recorded/form_fields.inc"
#undef SG_FORM_TENSOR
};

/// nullptr if the form has no such member, or tensor.
const FormField* find_form_field(std::string_view form, std::string_view name, bool tensor);

/// "integer: heads of q and out" of a member, as the first form that has it says it.
std::string meaning_of_member(std::string_view name);

/// Names of the form's members, or tensors: what a misspelt one may have meant.
std::vector<std::string> names_of_form_fields(std::string_view form, bool tensor);

}  // namespace shadowgraph
