#include "check/worlds/recurrent_world.h"

#include <algorithm>

#include "attn/tensor_rows.h"
#include "check/bits.h"
#include "check/mistakes/diagnose.h"
#include "core/laws.h"
#include "launch/state_launch.h"

namespace shadowgraph {
namespace {

int64_t a_place(const Buffer& b) { return b.rows(0, 1).count; }

std::string bits_of(float x) { return bits_of(&x, DType::kF32); }

int64_t first_difference(const float* want, const float* got, int64_t count) {
  return first_difference(want, got, count, DType::kF32);
}

const float* floats(const Buffer& b) { return reinterpret_cast<const float*>(b.data); }

}  // namespace

HostStates RecurrentWorld::contents(const Pools& p) const {
  HostStates s;
  if (layer_.has_conv()) s.conv.assign(floats(p.conv), floats(p.conv) + p.conv.numel());
  s.states.assign(floats(p.states), floats(p.states) + p.states.numel());
  return s;
}

std::vector<const Buffer*> RecurrentWorld::pools(const Pools& p) const {
  if (!layer_.has_conv()) return {&p.states};
  return {&p.conv, &p.states};
}

int32_t RecurrentWorld::slot_of_request(const ForwardBatch& batch, int64_t i) const {
  if (batch.req_pool_indices.empty()) return -1;
  const auto row = static_cast<size_t>(batch.req_pool_indices[static_cast<size_t>(i)]);
  if (row >= batch.states.slots.size()) return -1;
  const int32_t slot = batch.states.slots[row];
  return slot < std::ssize(defined_) ? slot : -1;
}

void RecurrentWorld::own(int32_t slot, OwnerId owner) {
  for (const Buffer* b : pools(pools_)) (void)scope_.set_owner(*b, b->rows(slot, 1), owner);
  owners_[static_cast<size_t>(slot)] = owner;
}

void RecurrentWorld::retire(int32_t slot) {
  for (const Buffer* b : pools(pools_)) (void)scope_.retire(*b, b->rows(slot, 1));
}

/// For a delta rule the engine's allocator clears the state, because a prefill reads it.
void RecurrentWorld::begin_slot(int32_t slot, OwnerId owner) {
  retire(slot);
  own(slot, owner);
  defined_[static_cast<size_t>(slot)] = 0;
  if (!layer_.reads_fresh_slots()) return;
  const std::span<std::byte> state = bytes_at(pools_.states, pools_.states.rows(slot, 1));
  place_.streams.pools().fill(state.data(), 0, state.size());
}

/// One copy after the other: a later one may read what an earlier one wrote.
void RecurrentWorld::copy_place(const Pools& from, int64_t place, int32_t slot) {
  Stream& stream = place_.streams.pools();
  const int32_t pair[2] = {static_cast<int32_t>(place), slot};
  stream.copy(list_.data, pair, sizeof pair);
  const auto* at = reinterpret_cast<const int32_t*>(list_.data);
  const auto launch = [&](const Buffer& source, const Buffer& target) {
    TensorView to = target.view();
    TensorView flat(source.data, DType::kF32, {source.numel() / a_place(target), a_place(target)});
    to = TensorView(target.data, DType::kF32, {target.shape[0], a_place(target)});
    stream.launch(copy_states_launch({flat, to, {at, 1}, {at + 1, 1}}, {.a_request = 0}));
  };
  if (layer_.has_conv()) launch(from.conv, pools_.conv);
  launch(from.states, pools_.states);
  place_.streams.settle();
}

void RecurrentWorld::copy_known(const HostStates& from, int64_t place, int32_t slot) {
  const auto copy = [&](const std::vector<float>& source, std::vector<float>* target,
                        const Buffer& b) {
    const int64_t n = a_place(b);
    std::copy_n(source.begin() + place * n, n, target->begin() + slot * n);
  };
  if (layer_.has_conv()) copy(from.conv, &known_.conv, pools_.conv);
  copy(from.states, &known_.states, pools_.states);
}

void RecurrentWorld::move(const StateMove& m) {
  const auto slot = static_cast<size_t>(m.slot);
  switch (m.kind) {
    case StateMove::Kind::kFresh: return begin_slot(m.slot, m.owner);
    case StateMove::Kind::kKeep: return own(m.slot, kCache);
    case StateMove::Kind::kTake: return own(m.slot, m.owner);
    case StateMove::Kind::kCopy:
      copy_place(pools_, m.from, m.slot);
      copy_known(known_, m.from, m.slot);
      own(m.slot, m.owner);
      defined_[slot] = defined_[static_cast<size_t>(m.from)];
      return;
    case StateMove::Kind::kCommit: {
      const int64_t place = m.from * draft_steps_ + m.step;
      copy_place(drafts_, place, m.slot);
      copy_known(known_drafts_, place, m.slot);
      return;
    }
  }
}

/// Is the move sound? If not, pool.state and step.state report it.
bool RecurrentWorld::is_sound(const StateMove& m) const {
  const auto is_slot = [&](int64_t slot) { return slot >= 0 && slot < std::ssize(defined_); };
  const bool row =
      m.from >= 0 && m.from < drafts_.states.shape[0] && m.step >= 0 && m.step < draft_steps_;
  return is_slot(m.slot) && (m.kind != StateMove::Kind::kCopy || is_slot(m.from)) &&
         (m.kind != StateMove::Kind::kCommit || row);
}

Status RecurrentWorld::move_states(const Step& step) {
  place_.streams.settle();
  copies_.clear(), moves_.clear();
  for (const StateMove& m : step.state_moves)
    if (is_sound(m)) move(m);
  place_.streams.settle();
  return known_.states.empty() ? Status{} : compare_pools(known_, true);
}

HostStates RecurrentWorld::one_of(const HostStates& states, const Pools& of, int64_t place) const {
  const auto part = [&](const std::vector<float>& all, const Buffer& b) {
    const int64_t n = &of == &drafts_ ? a_place(b) / draft_steps_ : a_place(b);
    return std::vector<float>(all.begin() + place * n, all.begin() + (place + 1) * n);
  };
  HostStates one;
  if (layer_.has_conv()) one.conv = part(states.conv, of.conv);
  one.states = part(states.states, of.states);
  return one;
}

void RecurrentWorld::set_one(const HostStates& one, const Pools& /*of*/, int64_t place,
                             HostStates* states) const {
  const auto set = [&](const std::vector<float>& from, std::vector<float>* to) {
    std::ranges::copy(from, to->begin() + place * std::ssize(from));
  };
  if (layer_.has_conv()) set(one.conv, &states->conv);
  set(one.states, &states->states);
}

void RecurrentWorld::write(const HostStates& one, const Pools& to, int64_t place) {
  const auto copy = [&](const std::vector<float>& from, const Buffer& b) {
    const auto count = std::ssize(from);
    moves_.copy(bytes_at(b, {place * count, count}).data(), from);
  };
  if (layer_.has_conv()) copy(one.conv, to.conv);
  copy(one.states, to.states);
}

void RecurrentWorld::write_slot(int32_t slot, std::span<const TokenContent> tokens) {
  if (slot < 0 || slot >= std::ssize(defined_) || tokens.empty()) return;
  write(book_.behind(tokens), pools_, slot);
  defined_[static_cast<size_t>(slot)] = 1;
}

int64_t RecurrentWorld::tracked(const ForwardBatch& batch, int64_t i) const {
  const auto row = static_cast<size_t>(i);
  if (batch.states.track_slots.empty() || batch.states.track_slots[row] < 0) return 0;
  if (batch.states.track_slots[row] >= std::ssize(defined_)) return 0;
  const RequestExtent e = batch.extent(i);
  const int64_t behind =
      std::min<int64_t>(int64_t{batch.states.track_lens[row]} - e.prefix_len, e.q_len);
  const int64_t tokens = behind - behind % layer_.chunk_size;
  return tokens <= 0 ? 0 : e.prefix_len + tokens;
}

/// Drafts are another model's, and a verify leaves what is accepted behind each token.
void RecurrentWorld::receive(const Step& step, const ForwardBatch& batch, bool first) {
  const ForwardMode m = batch.mode;
  if (m == ForwardMode::kDraftDecode || is_draft_extend(m, DraftExtendV2::kIncluded)) return;
  contents_ = row_contents(step, batch, place_.model.layers[place_.kind], place_.model);
  for (int64_t i = 0; i < batch.size(); ++i) {
    const std::span<const TokenContent> tokens = tokens_of(i);
    const int32_t slot = slot_of_request(batch, i);
    const RequestExtent e = batch.extent(i);
    if (!is_target_verify(m)) {
      write_slot(slot, tokens);
      const int64_t behind = tracked(batch, i);
      if (behind > 0)
        write_slot(batch.states.track_slots[static_cast<size_t>(i)],
                   tokens.first(static_cast<size_t>(behind)));
      continue;
    }
    if (first) write_slot(slot, tokens.first(static_cast<size_t>(e.prefix_len)));
    for (int32_t t = 0; t < e.q_len; ++t)
      write(book_.behind(path_to(batch, i, t)), drafts_, i * draft_steps_ + t);
  }
  place_.streams.settle();
  known_ = contents(pools_), known_drafts_ = contents(drafts_);
}

/// Compares what each request's slot holds with what it must hold.
Status RecurrentWorld::check_reads(const ForwardBatch& batch) {
  Status status;
  right_ = before_;
  for (int64_t i = 0; i < batch.size(); ++i) {
    const int32_t slot = slot_of_request(batch, i);
    const auto prefix = static_cast<size_t>(batch.extent(i).prefix_len);
    if (slot < 0 || prefix == 0) continue;
    judged("life.read");
    const std::span<const TokenContent> tokens = tokens_of(i).first(prefix);
    const HostStates& want = book_.behind(tokens);
    const HostStates got = one_of(before_, pools_, slot);
    if (defined_[static_cast<size_t>(slot)] != 0 && got == want) continue;
    const std::optional<TokenContent> other = book_.find(got);
    set_one(want, pools_, slot, &right_);
    status.add(make_finding("life.read", at(pools_.states.name, slot),
                            StateBook::told(tokens.back()),
                            other ? StateBook::told(*other) : "the state of no tokens"));
  }
  return status;
}

Status RecurrentWorld::begin_step(const Step& step, const ForwardBatch& batch, bool first) {
  copies_.clear(), moves_.clear();
  contents_ = row_contents(step, batch, place_.model.layers[place_.kind], place_.model);
  for (const Buffer* b : inputs_.bound()) {
    const std::vector<float> rows = book_.rows(*b, contents_.fresh);
    if (!rows.empty()) copies_.copy(b->data, rows);
  }
  for (int64_t i = 0; i < batch.size(); ++i) {
    const int32_t slot = slot_of_request(batch, i);
    const auto prefix = static_cast<size_t>(batch.extent(i).prefix_len);
    if (!first || slot < 0 || prefix == 0) continue;
    write_slot(slot, tokens_of(i).first(prefix));
    own(slot, step.requests[static_cast<size_t>(i)]);
  }
  for (int64_t i = 0; i < batch.size() && is_target_verify(batch.mode); ++i) {
    for (const Buffer* b : pools(drafts_))
      (void)scope_.set_owner(*b, b->rows(i, 1), step.requests[static_cast<size_t>(i)]);
  }
  place_.streams.settle();
  before_ = contents(pools_);
  defined_before_ = defined_;
  return check_reads(batch);
}

void RecurrentWorld::clear_outputs() {
  place_.streams.forward().fill(out_.data, kUnwritten, out_.bytes());
  for (const Buffer* b : pools(drafts_))
    if (b->data != nullptr) place_.streams.forward().fill(b->data, kUnwritten, b->bytes());
}

void RecurrentWorld::rewind() {
  place_.streams.settle();
  copies_.clear(), moves_.clear();
  if (layer_.has_conv()) copies_.copy(pools_.conv.data, before_.conv);
  copies_.copy(pools_.states.data, before_.states);
  place_.streams.settle();
  for (size_t slot = 0; slot < defined_before_.size(); ++slot) {
    if (defined_before_[slot] != 0) continue;
    const auto at = static_cast<int32_t>(slot);
    if (layer_.has_conv()) (void)scope_.retire(pools_.conv, pools_.conv.rows(at, 1));
    if (!layer_.reads_fresh_slots()) (void)scope_.retire(pools_.states, pools_.states.rows(at, 1));
  }
  defined_ = defined_before_;
}

void RecurrentWorld::begin_history(uint64_t number) {
  rng_ = place_.rng_of(number);
  book_.clear(place_.rng_of(number).next());
  for (int32_t slot = 0; slot < std::ssize(defined_); ++slot) own(slot, 0);
  std::ranges::fill(defined_, uint8_t{0});
}

void RecurrentWorld::describe(int64_t tokens, size_t /*step*/, LayerIo* io) const {
  io->own = &described_.first(tokens, whole_);
  if (inputs_.q.data != nullptr) {
    io->q = rows_of(inputs_.q.view(), 0, tokens);
    io->k = rows_of(inputs_.k.view(), 0, tokens);
    io->v = rows_of(inputs_.v.view(), 0, tokens);
  }
  io->out = rows_of(out_.view(), 0, tokens);
}

/// The state after the tokens that the snapshot is behind, of a run of them alone.
void RecurrentWorld::track(const ForwardBatch& batch, int64_t i, RequestAlone request,
                           const HostStates& start, HostStates* pools) {
  const int64_t behind = tracked(batch, i);
  if (behind == 0) return;
  HostStates alone = start;
  request.tokens = behind - batch.extent(i).prefix_len;
  HostStates none;
  run_alone(layer_, {whole_, inputs_.q.view(), inputs_.k.view(), inputs_.v.view()}, request, &alone,
            &none);
  const HostStates one = one_of(alone, pools_, request.slot);
  const int32_t target = batch.states.track_slots[static_cast<size_t>(i)];
  set_one(one, pools_, target, pools);
  book_.put(tokens_of(i)[static_cast<size_t>(behind) - 1], one);
  defined_[static_cast<size_t>(target)] = 1;
}

std::vector<int32_t> RecurrentWorld::parents_of(const ForwardBatch& batch, int64_t i) const {
  if (batch.spec.retrieve_next_token.empty() || batch.spec.topk <= 1) return {};
  const RequestExtent e = batch.extent(i);
  const auto at = static_cast<size_t>(i * e.q_len), count = static_cast<size_t>(e.q_len);
  std::vector<int32_t> parents(count);
  (void)tree_parents(batch.spec.retrieve_next_token.subspan(at, count),
                     batch.spec.retrieve_next_sibling.subspan(at, count), e.q_len, parents);
  return parents;
}

std::vector<TokenContent> RecurrentWorld::path_to(const ForwardBatch& batch, int64_t i,
                                                  int32_t token) const {
  const std::span<const TokenContent> all = tokens_of(i);
  const auto prefix = static_cast<size_t>(batch.extent(i).prefix_len);
  const std::vector<int32_t> parents = parents_of(batch, i);
  std::vector<TokenContent> path = {all[prefix + static_cast<size_t>(token)]};
  for (int32_t t = token; t > 0;) {
    t = parents.empty() ? t - 1 : parents[static_cast<size_t>(t)];
    path.insert(path.begin(), all[prefix + static_cast<size_t>(t)]);
  }
  path.insert(path.begin(), all.begin(), all.begin() + static_cast<std::ptrdiff_t>(prefix));
  return path;
}

/// The book has what the step computed.
void RecurrentWorld::note(const ForwardBatch& batch, int64_t i) {
  const RequestExtent e = batch.extent(i);
  const std::span<const TokenContent> tokens = tokens_of(i);
  if (!is_target_verify(batch.mode))
    return book_.put(tokens.back(), one_of(known_, pools_, slot_of_request(batch, i)));
  const std::span<const TokenContent> drafted = tokens.subspan(static_cast<size_t>(e.prefix_len));
  for (int32_t t = 0; t < e.q_len; ++t)
    book_.put(drafted[static_cast<size_t>(t)],
              one_of(known_drafts_, drafts_, i * draft_steps_ + t));
}

void RecurrentWorld::run_request(const ForwardBatch& batch, int64_t i, int64_t first,
                                 HostStates* pools, HostStates* drafts, Status* status) {
  const RequestExtent e = batch.extent(i);
  RequestAlone request;
  request.first = first;
  request.slot = slot_of_request(batch, i);
  if (request.slot < 0) return;
  request.tokens = e.q_len;
  request.has_prefix = e.prefix_len > 0;
  request.verify = is_target_verify(batch.mode);
  request.draft_row = static_cast<int32_t>(i);
  const std::vector<int32_t> parents =
      request.verify ? parents_of(batch, i) : std::vector<int32_t>();
  request.parents = parents;
  HostStates start;
  const bool tracks = !batch.states.track_slots.empty();
  if (tracks) start = *pools;
  const std::vector<float> out =
      run_alone(layer_, {whole_, inputs_.q.view(), inputs_.k.view(), inputs_.v.view()}, request,
                pools, drafts);
  defined_[static_cast<size_t>(request.slot)] = 1;
  status->add(compare_outputs(out_, request.first, out));
  if (tracks) track(batch, i, request, start, pools);
  note(batch, i);
}

Status RecurrentWorld::judge_alone(const ForwardBatch& batch) {
  Status status;
  known_ = right_;
  known_drafts_ = contents(drafts_);  // rows of nobody hold anything
  int64_t first = 0;
  for (int64_t i = 0; i < batch.size(); ++i) {
    run_request(batch, i, first, &known_, &known_drafts_, &status);
    first += batch.extent(i).q_len;
  }
  status.add(compare_pools(known_, false));
  for (int64_t i = 0; i < batch.size() && is_target_verify(batch.mode); ++i)
    status.add(compare_drafts(known_drafts_, i));
  return status;
}

/// Slot 0 is nobody's, and padding may write there.
Status RecurrentWorld::compare_pools(const HostStates& want, bool moved) const {
  Status status;
  const auto compare = [&](const Buffer& b, const std::vector<float>& values) {
    const int64_t n = a_place(b);
    judged(moved ? LawId("state.moved") : LawId("state.pool"), b.shape[0] - 1);
    for (int64_t slot = 1; slot < b.shape[0]; ++slot) {
      const int64_t i = first_difference(values.data() + slot * n, floats(b) + slot * n, n);
      if (i < 0) continue;
      if (moved && defined_[static_cast<size_t>(slot)] == 0) continue;
      const std::string got = bits_of(floats(b)[slot * n + i]);
      const std::string expected = bits_of(values[static_cast<size_t>(slot * n + i)]);
      status.add(moved ? make_finding("state.moved", at(b.name, slot, i), expected, got)
                       : make_finding("state.pool", at(b.name, slot, i), expected, got));
    }
  };
  if (layer_.has_conv()) compare(pools_.conv, want.conv);
  compare(pools_.states, want.states);
  return status;
}

Status RecurrentWorld::compare_drafts(const HostStates& want, int64_t row) const {
  Status status;
  const auto compare = [&](const Buffer& b, const std::vector<float>& values) {
    const int64_t n = a_place(b);
    judged("state.draft");
    const int64_t i = first_difference(values.data() + row * n, floats(b) + row * n, n);
    if (i < 0) return;
    status.add(make_finding("state.draft", at(b.name, row, i / (n / draft_steps_)),
                            bits_of(values[static_cast<size_t>(row * n + i)]),
                            bits_of(floats(b)[row * n + i])));
  };
  if (layer_.has_conv()) compare(drafts_.conv, want.conv);
  compare(drafts_.states, want.states);
  return status;
}

}  // namespace shadowgraph
