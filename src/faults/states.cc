// Faults of recurrent states: slots, starts, trees, chunks, snapshots, decays. Tested by
// tests/faults/faults_test.cc.

#include <algorithm>
#include <numbers>

#include "backends/recurrent/recurrent_backend.h"
#include "faults/plant.h"
#include "faults/substitutes.h"
#include "launch/recurrent_launch.h"

namespace shadowgraph {
namespace {

constexpr char kStateSlots[] = "mamba_cache_indices";

/// fn(meta, staged numbers) of every buffer of this name.
template <class T, class Fn>
void for_staged(Meta& meta, std::string_view name, Fn fn) {
  for_buffers(meta, {name}, [&](const Meta& m, const Buffer& b) {
    if (b.lifetime == Lifetime::kPerStep) fn(m, staged<T>(m, b));
  });
}

/// body(tap, batch, meta, staged numbers) of every buffer of this name.
template <class T, BufferName name, class Body>
constexpr MakeFault on_values(Body) {
  return on_filled([](Tap& tap, const ForwardBatch& batch, Meta& meta) {
    for_staged<T>(meta, name.text,
                  [&](const Meta& m, std::span<T> values) { Body{}(tap, batch, m, values); });
  });
}

/// fn(call) -> bool of every recurrence; how many it changed.
template <class Fn>
int64_t change_recurrent(std::vector<TappedLaunch>& all, Fn fn) {
  int64_t changed = 0;
  for (TappedLaunch& one : all) {
    if (one.launch.kernel != &kLinearAttention) continue;
    auto [call, rows] = call_of<LinearCall>(one.launch);
    if (!fn(call)) continue;
    one.launch = recurrent_launch(call, rows);
    ++changed;
  }
  return changed;
}

/// A copy of a row's decays for each of so many tokens, changed.
template <class Fn>
void change_decays(LinearAttention& c, SlippedRun& run, Fn fn) {
  const int64_t tokens = c.v.shape[0], heads = c.v.shape[1];
  const bool per_head = c.log_decay.rank == 1;
  const int64_t a_token = per_head ? heads : c.log_decay.numel() / std::max<int64_t>(1, tokens);
  const auto* from = reinterpret_cast<const float*>(c.log_decay.data);
  const int64_t size = per_head ? heads : tokens * a_token;
  std::vector<float> values(static_cast<size_t>(tokens * a_token));
  std::vector<int64_t> places(values.size());
  for (int64_t i = 0; i < std::ssize(values); ++i) {
    const int64_t at = per_head ? i % heads : i;
    places[static_cast<size_t>(i)] = at;
    values[static_cast<size_t>(i)] = fn(i / std::max<int64_t>(1, a_token), from[at]);
  }
  const auto taken =
      run.take(std::span(from, static_cast<size_t>(size)), std::move(values), std::move(places));
  ConstTensorView changed = c.log_decay;
  changed.data = reinterpret_cast<const std::byte*>(taken.data());
  if (per_head) changed = ConstTensorView(taken.data(), DType::kF32, {tokens, heads});
  c.log_decay = changed;
}

/// The first token of a prefill's row that goes on from its slot reads a state that has not
/// decayed.
void skip_first_decay(const KernelLaunch& launch, SlippedRun& run) {
  auto [call, rows] = call_of<LinearCall>(launch);
  LinearCall& c = call;
  change_decays(c, run, [&](int64_t token, float decay) {
    for (int64_t r = 0; r < c.rows.rows(); ++r)
      if (token == c.rows.begin(r) && c.rows.starts_from_slot(r)) return 0.0f;
    return decay;
  });
  run.launch(recurrent_launch(c, rows));
}

/// 2^x where e^x is meant.
void decay_in_base_two(const KernelLaunch& launch, SlippedRun& run) {
  auto [call, rows] = call_of<LinearCall>(launch);
  LinearCall& c = call;
  change_decays(c, run, [](int64_t, float decay) { return decay * std::numbers::ln2_v<float>; });
  run.launch(recurrent_launch(c, rows));
}

/// A kernel without a guard: -1 is the place before the first. So every slot is counted from there.
void without_guard(const KernelLaunch& launch, SlippedRun& run) {
  auto [call, rows] = call_of<LinearCall>(launch);
  LinearCall& c = call;
  const auto slots = c.rows.state_indices;
  std::vector<int32_t> counted(slots.begin(), slots.end());
  for (int32_t& slot : counted) ++slot;
  c.rows.state_indices = run.take(slots, std::move(counted));
  c.states.data -= c.states.stride[0] * static_cast<int64_t>(sizeof(float));
  ++c.states.shape[0];
  run.launch(recurrent_launch(c, rows));
}

bool is_prefill(const KernelLaunch& launch, const Meta& meta) {
  return launch.kernel == &kLinearAttention && is_state_prefill(meta.limits.mode);
}

/// -1 is an index from the end. Launches say how long the pool is: those of eager steps come first,
/// and have no padding.
struct PaddingIsTheLastSlot final : Tap {
  void launches(std::vector<TappedLaunch>& all, const Meta& /*meta*/, bool) override {
    for (const TappedLaunch& one : all)
      if (one.launch.kernel == &kLinearAttention)
        last_ = static_cast<int32_t>(call_of<LinearCall>(one.launch).call.states.shape[0]) - 1;
  }
  Status filled(const ForwardBatch& /*batch*/, Meta& meta) override {
    if (last_ < 1) return {};
    for_staged<int32_t>(meta, kStateSlots, [&](const Meta&, std::span<int32_t> slots) {
      for (int32_t& slot : slots) {
        if (slot != -1) continue;
        slot = last_;
        act();
      }
    });
    return {};
  }

 private:
  int32_t last_ = 0;
};

struct SlotsOfTheCapture final : Tap {
  Status filled(const ForwardBatch& /*batch*/, Meta& meta) override {
    if (!meta.limits.is_bucket()) return {};
    for_buffers(meta, {kStateSlots}, [&](const Meta& m, const Buffer& b) {
      const std::span<int32_t> slots = staged<int32_t>(m, b);
      const auto [it, fresh] = first_.try_emplace(b.data, slots.begin(), slots.end());
      if (fresh || it->second.size() != slots.size() || std::ranges::equal(it->second, slots))
        return;
      std::ranges::copy(it->second, slots.begin());
      act();
    });
    return {};
  }

 private:
  std::map<const std::byte*, std::vector<int32_t>> first_;  // by buffer
};

constexpr Fault kStatesFaults[] = {
    {"M01", "STALE", "A fresh request starts from what its slot holds", "fi.I-90", "",
     on_values<uint8_t, "has_initial_states">([](Tap& tap, const ForwardBatch& batch, const Meta& m,
                                                 std::span<uint8_t> initial) {
       for (int64_t i = 0; i < std::min(real_rows(batch, m.limits).rows, std::ssize(initial)); ++i)
         if (std::exchange(initial[static_cast<size_t>(i)], uint8_t{1}) == 0) tap.act();
     })},
    // As many tokens as rows: what follows is a decode, which knows of no fresh request.
    {"M06", "STALE", "Prompts of one token each are run as a decode, from what their slots hold",
     "fi.I-90", "", on_filled([](Tap& tap, const ForwardBatch& batch, Meta& meta) {
       if (!std::ranges::all_of(batch.extend_lens, [](int32_t n) { return n == 1; })) return;
       for_staged<uint8_t>(meta, "has_initial_states",
                           [&](const Meta&, std::span<uint8_t> initial) {
                             for (uint8_t& flag : initial)
                               if (std::exchange(flag, uint8_t{1}) == 0) tap.act();
                           });
     })},
    {"M04", "PADROW", "The slot -1 of padding is the last of the pool", "fi.I-88", "",
     make_tap<PaddingIsTheLastSlot>},
    // As many rows from the end are padding as have the length of padding.
    {"M02", "PADROW", "Padding is counted by its length, and a real row has that length", "fi.I-83",
     "", on_filled([](Tap& tap, const ForwardBatch& batch, Meta& meta) {
       if (!is_decode_or_idle(batch.mode) && !is_target_verify(batch.mode)) return;
       const auto alike = std::ranges::count(batch.seq_lens, meta.limits.model.seq_len_fill);
       if (alike == 0 || !is_replay(batch, meta)) return;
       for_staged<int32_t>(meta, kStateSlots, [&](const Meta& m, std::span<int32_t> slots) {
         const int64_t rows = real_rows(batch, m.limits).rows;
         for (int64_t i = std::max<int64_t>(0, rows - alike); i < rows; ++i) {
           slots[static_cast<size_t>(i)] = -1;
           tap.act();
         }
       });
     })},
    // The other child's padding has another length: none is found, and padding has row 0's slot.
    {"M03", "PADROW", "Layers of states look for another padding than the other layers have",
     "fi.I-71 fi.I-83", "", on_filled([](Tap& tap, const ForwardBatch& batch, Meta& meta) {
       if (meta.limits.model.seq_len_fill == 1 || !is_replay(batch, meta)) return;
       for_staged<int32_t>(meta, kStateSlots, [&](const Meta&, std::span<int32_t> slots) {
         for (int32_t& slot : slots) {
           if (slot != -1) continue;
           slot = 0;
           tap.act();
         }
       });
     })},
    {"M07", "SCALAR", "State slots are looked up by the row of the batch", "fi.I-88", "",
     on_values<int32_t, kStateSlots>(
         [](Tap& tap, const ForwardBatch& batch, const Meta& m, std::span<int32_t> slots) {
           for (int64_t i = 0; i < real_rows(batch, m.limits).rows; ++i) {
             const auto row = static_cast<size_t>(i) + 1;
             if (row >= batch.states.slots.size()) return;
             if (std::exchange(slots[row - 1], batch.states.slots[row]) != slots[row - 1])
               tap.act();
           }
         })},
    {"M08", "STALE", "A replay has the state slots of its capture", "fi.I-76 fi.I-88", "",
     make_tap<SlotsOfTheCapture>},
    {"M09", "TREE", "A token of a tree starts from the token before it, and not from its parent",
     "fi.I-94", "", on_filled([](Tap& tap, const ForwardBatch& batch, Meta& meta) {
       const auto change = [&](std::string_view name, auto value_of) {
         for_staged<int32_t>(meta, name, [&](const Meta& m, std::span<int32_t> all) {
           const int64_t steps = std::max<int64_t>(1, m.limits.max_q_len);
           for (int64_t t = 0;
                t < std::min(real_rows(batch, m.limits).rows * steps, std::ssize(all)); ++t) {
             int32_t& value = all[static_cast<size_t>(t)];
             if (const int32_t chain = value_of(t % steps, steps); chain != value)
               value = chain, tap.act();
           }
         });
       };
       change("retrieve_next_token", [](int64_t j, int64_t steps) {
         return j + 1 < steps ? static_cast<int32_t>(j + 1) : -1;
       });
       change("retrieve_next_sibling", [](int64_t, int64_t) { return -1; });
     })},
    // Where a chunk begins is counted from each request's first token.
    {"M13", "OTHER",
     "Chunks are counted from each request's first token where the batch's are meant", "fi.I-91",
     "", on_filled([](Tap& tap, const ForwardBatch&, Meta& meta) {
       for_metas(meta, [&](Meta& m) {
         const Buffer* rows = find_buffer(m, "query_start_loc");
         const Buffer* offsets = find_buffer(m, "chunk_offsets");
         if (rows == nullptr || offsets == nullptr) return;
         const auto starts = staged<int32_t>(m, *rows, rows->all());
         const int32_t chunk = state_chunk_size(m.limits.model);
         int64_t run = 0;
         for (size_t i = 0; i + 1 < starts.size(); ++i) {
           for (int32_t t = starts[i]; t < starts[i + 1]; ++t) {
             if (t != starts[i] && t % chunk != 0) continue;
             if (run == offsets->numel()) return;
             const auto one = staged<int32_t>(m, *offsets, {run++, 1});
             const int32_t own = (t - starts[i]) % chunk;
             if (std::exchange(one[0], own) != own) tap.act();
           }
         }
       });
     })},
    {"M14", "PREFIX", "A snapshot is written to a slot that a request works in", "fi.I-96", "",
     on_values<int32_t, "track_slots">(
         [](Tap& tap, const ForwardBatch& batch, const Meta& m, std::span<int32_t> tracks) {
           const int64_t rows = real_rows(batch, m.limits).rows;
           for (int64_t i = 0; i < rows; ++i) {
             int32_t& track = tracks[static_cast<size_t>(i)];
             if (track < 0) continue;
             const auto other = static_cast<size_t>(m.limits.first_row + (i + 1) % rows);
             track = batch.states.slots[static_cast<size_t>(batch.req_pool_indices[other])];
             tap.act();
           }
         })},
    {"M11", "OTHER", "A verify stores the state behind its last draft", "fi.I-93", "",
     on_launches([](Tap& tap, Launches& all, const Meta& meta) {
       if (!is_target_verify(meta.limits.mode)) return;
       tap.act(
           change_recurrent(all, [](LinearAttention& c) { return !std::exchange(c.store, true); }));
     })},
    // The window behind a token of a tree holds the tokens before it, and not its path.
    {"M10", "TREE", "The window of a convolution holds the tokens before, and not the path",
     "fi.I-94 fi.I-95", "", on_launches([](Tap& tap, Launches& all, const Meta&) {
       for (TappedLaunch& one : all) {
         if (one.launch.kernel != &kCausalConv1d) continue;
         auto [call, rows] = call_of<CausalConv1d>(one.launch);
         if (call.draft.parents.empty()) continue;
         call.draft.parents = {};
         one.launch = conv_launch(call, rows);
         tap.act();
       }
     })},
    {"M05", "OOBW", "The slot -1 of padding is read and written before the pool", "fi.I-88", "",
     on_launches([](Tap& tap, Launches& all, const Meta& meta) {
       if (is_state_prefill(meta.limits.mode)) return;
       tap.act(substitute<without_guard>(
           all, [](const KernelLaunch& launch) { return launch.kernel == &kLinearAttention; }));
     })},
    {"M17", "OTHER", "The state before a block enters its first token without its decay",
     "fi.I-92 fi.I-97", "", on_launches([](Tap& tap, Launches& all, const Meta& meta) {
       tap.act(substitute<skip_first_decay>(
           all, [&](const KernelLaunch& launch) { return is_prefill(launch, meta); }));
     })},
    {"M18", "LSE", "Natural decays are exponents of two within a prefill",
     "sglang#31904 sglang#30860", "", on_launches([](Tap& tap, Launches& all, const Meta& meta) {
       tap.act(substitute<decay_in_base_two>(
           all, [&](const KernelLaunch& launch) { return is_prefill(launch, meta); }));
     })},
    {"M16", "STALE", "A slot that is handed out again keeps its state", "fi.I-90", "",
     on_step([](Tap& tap, Step& step, const PoolState&) {
       for (StateMove& m : step.state_moves) {
         if (m.kind != StateMove::Kind::kFresh) continue;
         m.kind = StateMove::Kind::kTake;
         tap.act();
       }
     })},
    {"M15", "PREFIX", "A shared prefix begins without its state", "fi.I-92", "",
     on_step([](Tap& tap, Step& step, const PoolState&) {
       tap.act(static_cast<int64_t>(std::erase_if(
           step.state_moves, [](const StateMove& m) { return m.kind == StateMove::Kind::kCopy; })));
     })},
    {"M12", "OTHER", "The state of the last draft is committed, whatever is accepted", "fi.I-93",
     "", on_step([](Tap& tap, Step& step, const PoolState& pools) {
       for (StateMove& m : step.state_moves) {
         if (m.kind != StateMove::Kind::kCommit) continue;
         const int32_t last = pools.config.draft.num_draft_tokens - 1;
         if (std::exchange(m.step, last) != last) tap.act();
       }
     })},
};

}  // namespace

std::span<const Fault> themes::states() { return kStatesFaults; }

}  // namespace shadowgraph
