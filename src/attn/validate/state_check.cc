#include "attn/validate/state_check.h"

#include <string>
#include <unordered_map>
#include <utility>

#include "attn/validate/batch_check.h"

namespace shadowgraph {
namespace {

/// Checks indices into `count` places, where -1 is no place. Takes memory by the rows: a pool may
/// have more places than fit.
class Places {
 public:
  Places(TensorCheck& c, const char* field, int64_t count) : c_(c), field_(field), count_(count) {}

  void take(int64_t row, int64_t place, bool unique, bool none) {
    if (none && place == -1) return;
    if (place < 0 || place >= count_) {
      fail("slot.range", row,
           (none ? "-1, or 0 <= slot < " : "0 <= slot < ") + std::to_string(count_),
           std::to_string(place));
      return;
    }
    if (!unique) return;
    const auto [owner, first] = owner_.try_emplace(place, row);
    if (first) return;
    fail("slot.duplicate", row, "a slot of its own",
         std::to_string(place) + ", row " + std::to_string(owner->second) + "'s");
    owner->second = row;
  }
  bool good() const { return good_; }

 private:
  void fail(LawId law, int64_t row, std::string expected, std::string got) {
    c_.fail(law, at(field_, row), std::move(expected), std::move(got));
    good_ = false;
  }

  TensorCheck& c_;
  const char* field_;
  const int64_t count_;
  std::unordered_map<int64_t, int64_t> owner_;  // the last row that writes a place
  bool good_ = true;
};

}  // namespace

bool check_state_rows(TensorCheck& c, const StateRows& rows, int64_t tokens, int64_t num_slots,
                      bool written) {
  bool usable = c.span("cu_seqlens_q", rows.cu_seqlens_q);
  usable &= c.span("state_indices", rows.state_indices);
  usable &= c.span("has_initial_state", rows.has_initial_state);
  if (rows.cu_seqlens_q.empty() || rows.cu_seqlens_q.data() != nullptr)
    usable &= check_indptr(c, "cu_seqlens_q", rows.cu_seqlens_q, rows.rows(), tokens);
  if (!rows.has_initial_state.empty() && std::ssize(rows.has_initial_state) != rows.rows()) {
    c.fail("len.batch", at("has_initial_state"), std::to_string(rows.rows()) + " entries",
           std::to_string(rows.has_initial_state.size()));
    usable = false;
  }
  if (!usable) return false;
  Places slots(c, "state_indices", num_slots);
  for (int64_t r = 0; r < rows.rows(); ++r)
    slots.take(r, rows.state_indices[static_cast<size_t>(r)], written && rows.tokens(r) > 0, true);
  return slots.good();
}

bool check_draft(TensorCheck& c, const DraftSteps& draft, const StateRows& rows, int64_t places,
                 int64_t steps) {
  bool usable = c.span("draft.indices", draft.indices);
  usable &= c.span("draft.parents", draft.parents);
  const auto fail = [&](LawId law, Where where, std::string expected, std::string got) {
    c.fail(law, std::move(where), std::move(expected), std::move(got));
    usable = false;
  };
  const int64_t tokens = rows.cu_seqlens_q.back();
  if (!draft.indices.empty() && std::ssize(draft.indices) != rows.rows())
    fail("len.batch", at("draft.indices"), std::to_string(rows.rows()),
         std::to_string(draft.indices.size()));
  if (!draft.parents.empty() && std::ssize(draft.parents) != tokens)
    fail("len.batch", at("draft.parents"), std::to_string(tokens),
         std::to_string(draft.parents.size()));
  if (!usable) return false;
  Places taken(c, "draft.indices", places);
  for (int64_t r = 0; r < rows.rows(); ++r) {
    const auto i = static_cast<size_t>(r);
    if (draft.states.defined()) {
      if (rows.tokens(r) > steps)
        fail("len.capacity", at("draft.states", r), std::to_string(rows.tokens(r)) + " steps",
             std::to_string(steps));
      taken.take(r, draft.indices.empty() ? r : draft.indices[i], rows.tokens(r) > 0, false);
    }
    for (int64_t j = 1; j < rows.tokens(r) && !draft.parents.empty(); ++j) {
      const int64_t token = rows.cu_seqlens_q[i] + j;
      const int32_t parent = draft.parents[static_cast<size_t>(token)];
      if (parent < 0 || parent >= j)
        fail("mask.tree", at("draft.parents", token), "0 <= parent < " + std::to_string(j),
             std::to_string(parent));
    }
  }
  return usable && taken.good();
}

}  // namespace shadowgraph
