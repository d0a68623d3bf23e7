#include "fuzz/linear_refusals.h"

#include <algorithm>
#include <limits>

namespace shadowgraph {
namespace {

/// A breakage of what both calls have.
template <class Apply>
bool on_each(StateCall* call, const Apply& apply) {
  return std::visit([&](auto& c) { return apply(c); }, *call);
}

bool set_slot(StateCall* call, Spoils* spoils, bool negative) {
  return on_each(call, [&](auto& c) {
    if (c.rows.rows() == 0) return false;
    auto& slots = spoils->copy(c.rows.state_indices);
    slots.back() = negative ? -2 : static_cast<int32_t>(c.states.shape[0]);
    c.rows.state_indices = slots;
    return true;
  });
}
bool slot_behind(StateCall* call, Spoils* spoils) { return set_slot(call, spoils, false); }
bool slot_below(StateCall* call, Spoils* spoils) { return set_slot(call, spoils, true); }

bool slot_twice(StateCall* call, Spoils* spoils) {
  const auto* attention = std::get_if<LinearAttention>(call);
  if (attention != nullptr && !attention->store) return false;
  return on_each(call, [&](auto& c) {
    auto& slots = spoils->copy(c.rows.state_indices);
    int64_t first = -1;
    for (int64_t r = 0; r < c.rows.rows(); ++r) {
      if (c.rows.slot(r) < 0 || c.rows.tokens(r) == 0) continue;
      if (first >= 0) {
        slots[static_cast<size_t>(r)] = c.rows.slot(first);
        c.rows.state_indices = slots;
        return true;
      }
      first = r;
    }
    return false;
  });
}

bool offsets_fall(StateCall* call, Spoils* spoils) {
  return on_each(call, [&](auto& c) {
    auto& offsets = spoils->copy(c.rows.cu_seqlens_q);
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      if (offsets[i] == 0) continue;
      offsets[i + 1] = offsets[i] - 1;
      c.rows.cu_seqlens_q = offsets;
      return true;
    }
    return false;
  });
}

bool offsets_end_behind(StateCall* call, Spoils* spoils) {
  return on_each(call, [&](auto& c) {
    auto& offsets = spoils->copy(c.rows.cu_seqlens_q);
    ++offsets.back();
    c.rows.cu_seqlens_q = offsets;
    return offsets.size() > 1;
  });
}

bool offsets_begin_late(StateCall* call, Spoils* spoils) {
  return on_each(call, [&](auto& c) {
    auto& offsets = spoils->copy(c.rows.cu_seqlens_q);
    offsets[0] = 1;
    c.rows.cu_seqlens_q = offsets;
    return true;
  });
}

bool flags_too_few(StateCall* call, Spoils* spoils) {
  return on_each(call, [&](auto& c) {
    if (c.rows.rows() < 2) return false;
    spoils->flags.assign(static_cast<size_t>(c.rows.rows() - 1), 1);
    c.rows.has_initial_state = spoils->flags;
    return true;
  });
}

bool place_behind(StateCall* call, Spoils* spoils) {
  return on_each(call, [&](auto& c) {
    if (!c.draft.states.defined() || c.rows.rows() == 0) return false;
    auto& places = spoils->numbers.emplace_back();
    for (int64_t r = 0; r < c.rows.rows(); ++r)
      places.push_back(static_cast<int32_t>(c.draft.place(r)));
    places.back() = static_cast<int32_t>(c.draft.states.shape[0]);
    c.draft.indices = places;
    return true;
  });
}

bool parent_is_itself(StateCall* call, Spoils* spoils) {
  return on_each(call, [&](auto& c) {
    for (int64_t r = 0; r < c.rows.rows() && !c.draft.parents.empty(); ++r) {
      if (c.rows.tokens(r) < 2) continue;
      auto& parents = spoils->copy(c.draft.parents);
      parents[static_cast<size_t>(c.rows.begin(r)) + 1] = 1;
      c.draft.parents = parents;
      return true;
    }
    return false;
  });
}

bool too_few_steps(StateCall* call, Spoils*) {
  return on_each(call, [&](auto& c) {
    int64_t longest = 0;
    for (int64_t r = 0; r < c.rows.rows(); ++r) longest = std::max(longest, c.rows.tokens(r));
    if (!c.draft.states.defined() || longest < 2) return false;
    c.draft.states.shape[1] = longest - 1;
    return true;
  });
}

bool out_over_states(StateCall* call, Spoils*) {
  return on_each(call, [&](auto& c) {
    if (c.out.numel() == 0) return false;
    c.out.data = c.states.data;
    return true;
  });
}
bool no_out(StateCall* call, Spoils*) {
  return on_each(call, [&](auto& c) {
    c.out.data = nullptr;
    return c.out.numel() > 0;
  });
}
bool out_of_8_bits(StateCall* call, Spoils*) {
  return on_each(call, [&](auto& c) {
    c.out.dtype = DType::kE4M3;
    return true;
  });
}
bool other_states(StateCall* call, Spoils*) {
  return on_each(call, [&](auto& c) {
    ++c.states.shape[1];
    return true;
  });
}
bool unknown_isa(StateCall* call, Spoils*) {
  return on_each(call, [&](auto& c) {
    c.options.isa = "riscv";
    return true;
  });
}

bool scale_nan(StateCall* call, Spoils*) {
  auto* c = std::get_if<LinearAttention>(call);
  if (c != nullptr) c->scale = std::numeric_limits<float>::quiet_NaN();
  return c != nullptr;
}
bool chunk_too_many(StateCall* call, Spoils*) {
  auto* c = std::get_if<LinearAttention>(call);
  if (c == nullptr || !c->chunk_states.defined()) return false;
  ++c->chunk_states.shape[0];
  return true;
}

constexpr Breakage<StateCall> kLinearBreakages[] = {
    {"a slot behind the pool", "slot.range", slot_behind},
    {"slot -2", "slot.range", slot_below},
    {"two rows of one slot", "slot.duplicate", slot_twice},
    {"offsets that fall", "len.indptr_monotone", offsets_fall},
    {"offsets that end behind the tokens", "len.total", offsets_end_behind},
    {"offsets that begin with 1", "len.indptr_first", offsets_begin_late},
    {"a flag too few", "len.batch", flags_too_few},
    {"a place behind the draft's", "slot.range", place_behind},
    {"a parent that is the token itself", "mask.tree", parent_is_itself},
    {"a step too few", "len.capacity", too_few_steps},
    {"outputs over states", "input.alias", out_over_states},
    {"outputs without memory", "input.null", no_out},
    {"outputs of 8 bits", "input.dtype", out_of_8_bits},
    {"states of another shape", "input.shape", other_states},
    {"an instruction set that there is not", "input.isa", unknown_isa},
    {"a scale that is no number", "param.scale", scale_nan},
    {"a chunk too many", "input.shape", chunk_too_many},
};

}  // namespace

std::span<const Breakage<StateCall>> linear_breakages() { return kLinearBreakages; }

}  // namespace shadowgraph
