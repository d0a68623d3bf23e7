#include "check/worlds/dense_world.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "check/bounds/compare.h"
#include "check/mistakes/diagnose.h"
#include "core/laws.h"

namespace shadowgraph {
namespace {

constexpr float kSelectorQuery = 1024;  // times a scale of 1/4 and more
constexpr float kSelectorSink = -1024;  // no key has such a logit

size_t row_bytes(const Buffer& b) {
  return b.bytes() / static_cast<size_t>(std::max<int64_t>(1, b.shape[0]));
}

/// With selector data every key begins with an integer of its own (DenseContents). A query
/// multiplies that integer by so much that logits, exact in f32, are 256 apart: exp(-256) is 0.
/// With shifted data all keys begin with one number. A query multiplies it by 2^5 to 2^12, and by
/// up to 2^100 in half of the rows: beyond each finite number that stands for -inf.
std::vector<float> queries(int64_t count, int64_t dim, RunnerData data, Rng& rng) {
  std::vector<float> values(static_cast<size_t>(count));
  if (data == RunnerData::kRandom) {
    for (float& x : values) x = rng.signed_unit();
  } else if (data == RunnerData::kSelector) {
    for (size_t i = 0; i < values.size(); i += static_cast<size_t>(dim)) values[i] = kSelectorQuery;
  } else if (data == RunnerData::kShifted) {
    for (size_t i = 0; i < values.size(); i += static_cast<size_t>(dim)) {
      const float sign = rng.below(2) != 0 ? 1.0F : -1.0F;
      const uint32_t exponents = rng.below(2) != 0 ? 96 : 8;
      values[i] = std::ldexp(sign, 5 + static_cast<int>(rng.below(exponents)));
    }
  }
  return values;
}

}  // namespace

std::vector<float> DenseWorld::sink_logits() {
  std::vector<float> logits(static_cast<size_t>(kind_.params.num_qo_heads));
  for (float& x : logits) {
    x = 4 * place_.rng.signed_unit();
    if (place_.rng.below(4) == 0) x = -std::numeric_limits<float>::infinity();
    if (place_.options.data == RunnerData::kSelector) x = kSelectorSink;
  }
  return logits;
}

void DenseWorld::clear_outputs() {
  for (const Buffer* b : outputs()) place_.streams.forward().fill(b->data, kUnwritten, b->bytes());
}

void DenseWorld::rewind() {
  for (const int32_t slot : new_) poison_slot(slot);
  poison_sink();
}

void DenseWorld::begin_history(uint64_t number) {
  owners_.forget_all();
  held_.clear();
  contents_.clear(place_.rng_of(number).next());
}

ForwardBatch DenseWorld::at_step(ForwardBatch batch, size_t step) {
  batch.spec.step += static_cast<int32_t>(step);
  return batch;
}

void DenseWorld::read_step(const Step& step, const ForwardBatch& batch) {
  encoded_.clear();
  if (kind_.cross && !is_captured(batch.mode))
    encoded_.assign(batch.encoder_out_cache_loc.begin(), batch.encoder_out_cache_loc.end());
  rows_.clear();
  new_.clear();
  const size_t steps = batch.mode == ForwardMode::kPrebuilt ? 1 : steps_.size();
  for (size_t s = 0; s < steps; ++s) {
    const ForwardBatch b = at_step(batch, s);
    StepRows& r = rows_.emplace_back();
    r.rows = canonical_rows(b, kind_, place_.model);
    r.contents = row_contents(step, b, kind_, place_.model);
    name_new(&r);
  }
}

void DenseWorld::name_new(StepRows* r) {
  const CanonicalRows& rows = r->rows;
  for (const int64_t slot : encoded_) {
    for (size_t row = 0; row < rows.keys.size(); ++row) {
      const auto at = std::ranges::find(rows.keys[row], slot) - rows.keys[row].begin();
      if (at == std::ssize(rows.keys[row])) continue;
      r->fresh.push_back(contents_.number(r->contents.keys[row][static_cast<size_t>(at)]));
      break;
    }
    new_.insert(static_cast<int32_t>(slot));
  }
  for (size_t row = 0, t = 0; row < rows.keys.size(); ++row) {
    const float factor = rows.key_factors.empty() ? 1 : rows.key_factors[row];
    for (const int32_t slot : rows.stored_by(row)) {
      r->fresh.push_back(contents_.number(r->contents.fresh[t++], factor));
      if (slot >= 0) new_.insert(slot);
    }
  }
}

/// A slot that holds the right token holds it times the factor that it was stored with.
void DenseWorld::name_old(StepRows* r) {
  const CanonicalRows& rows = r->rows;
  for (size_t row = 0; row < rows.keys.size(); ++row) {
    const float factor = rows.key_factors.empty() ? 1 : rows.key_factors[row];
    std::vector<int32_t>& keys = r->keys.emplace_back();
    for (size_t k = 0; k < rows.keys[row].size(); ++k) {
      const TokenContent& c = r->contents.keys[row][k];
      const int32_t is = new_.contains(rows.keys[row][k]) ? -1 : held(rows.keys[row][k]);
      const bool right = is >= 0 && contents_[is].chain == c.chain;
      keys.push_back(right ? is : contents_.number(c, factor));
    }
  }
}

/// A history may begin in the middle: what was stored before it is written here, and gets owners,
/// whom copies of it have, too.
void DenseWorld::adopt(const StepRows& r, std::span<const OwnerId> owners) {
  for (size_t row = 0; row < r.rows.keys.size(); ++row) {
    const std::span<const int32_t> old = r.rows.old_keys(row);
    for (size_t k = 0; k < old.size(); ++k) {
      if (is_evicted(old[k]) || new_.contains(old[k]) || held(old[k]) >= 0) continue;
      write_slot(old[k], contents_.number(r.contents.keys[row][k]));
    }
  }
  own(r, owners);
}

/// Copies move only tokens of the text.
void DenseWorld::make_copies(const Step& step) {
  for (const SlotCopy& c : step.copies)
    if (!kind_.cross) copy_slot(c, step.full_to_swa);
}

/// Another engine computed the new tokens.
void DenseWorld::arrive(const StepRows& r) {
  for (size_t t = 0; t < encoded_.size(); ++t)
    write_slot(static_cast<int32_t>(encoded_[t]), r.fresh[t]);
  for (size_t t = 0; t < r.rows.stored.size(); ++t)
    if (r.rows.stored[t] >= 0) write_slot(r.rows.stored[t], r.fresh[t]);
}

/// Padding's rows are whatever an older step has left.
void DenseWorld::give_queries(const Tensors& to) {
  const int64_t count = to.q.rows(0, tokens_).count;
  copies_.copy(to.q.data, queries(count, to.q.shape[2], place_.options.data, place_.rng));
}

void DenseWorld::give(const StepRows& r, const Tensors& to) {
  std::vector<float> k, v;
  for (const int32_t number : r.fresh) {
    const std::span<const float> of_k = contents_.given_k(number), of_v = contents_.given_v(number);
    k.insert(k.end(), of_k.begin(), of_k.end());
    v.insert(v.end(), of_v.begin(), of_v.end());
  }
  if (!k.empty()) copies_.copy(to.k.data, k);
  if (!v.empty()) copies_.copy(to.v.data, v);
}

void DenseWorld::own(const StepRows& r, std::span<const OwnerId> owners) {
  const size_t a_request = owners.empty() ? 1 : r.rows.keys.size() / owners.size();
  for (size_t row = 0; row < r.rows.keys.size(); ++row) {
    const OwnerId owner = owners[row / a_request];
    for (const int32_t slot : r.rows.old_keys(row))
      if (!is_evicted(slot)) set_owner(slot, owner, kind_.cross && new_.contains(slot));
    for (const int32_t slot : r.rows.stored_by(row))
      if (slot >= 0) set_owner(slot, owner, true);
  }
}

/// Nothing runs: what the step would leave is there, and nobody has read it yet.
void DenseWorld::receive(const Step& step, const ForwardBatch& batch, bool first) {
  copies_.clear(), moves_.clear();
  read_step(step, batch);
  if (first) adopt(rows_[0], step.requests);
  make_copies(step);
  arrive(rows_[0]);
  own(rows_[0], step.requests);
  place_.streams.settle();
}

Status DenseWorld::begin_step(const Step& step, const ForwardBatch& batch, bool first) {
  copies_.clear(), moves_.clear();
  tokens_ = Limits::exact(batch, place_.model).tokens;
  const bool arrives = batch.mode == ForwardMode::kPrebuilt;
  if (place_.options.diagnose && !arrives) scenes_.begin_step(batch);
  read_step(step, batch);
  for (const StepRows& r : rows_)
    if (first) adopt(r, step.requests);
  make_copies(step);
  for (size_t s = 0; s < rows_.size(); ++s) {
    name_old(&rows_[s]);
    if (arrives) {
      arrive(rows_[s]);
    } else {
      give_queries(steps_[s]);
      give(rows_[s], steps_[s]);
    }
    own(rows_[s], step.requests);
  }
  poison_sink();
  place_.streams.settle();
  Status status = check_reads();
  for (const StepRows& r : rows_) {
    for (size_t t = 0; t < encoded_.size(); ++t)
      held_[static_cast<int32_t>(encoded_[t])] = r.fresh[t];
    for (size_t t = 0; t < r.rows.stored.size(); ++t)
      if (r.rows.stored[t] >= 0) held_[r.rows.stored[t]] = r.fresh[t];
  }
  return status;
}

void DenseWorld::keep_outputs() {
  kept_.clear();
  for (const Buffer* b : outputs()) {
    const size_t bytes = row_bytes(*b) * static_cast<size_t>(tokens_);
    kept_.insert(kept_.end(), b->data, b->data + bytes);
  }
}

Status DenseWorld::same_outputs() const {
  Status status;
  const std::byte* kept = kept_.data();
  for (const Buffer* b : outputs()) {
    const size_t row = row_bytes(*b);
    judged("num.bits", tokens_);
    for (int64_t t = 0; t < tokens_; ++t, kept += row) {
      if (std::memcmp(kept, b->data + static_cast<size_t>(t) * row, row) == 0) continue;
      status.add(make_finding("num.bits", at(b->name, t), "the bits of the eager step",
                              "others in the replay"));
      kept += row * static_cast<size_t>(tokens_ - t);
      break;
    }
  }
  return status;
}

Status DenseWorld::judge_outputs(const ForwardBatch& batch, size_t step,
                                 const Limits& limits) const {
  const RunnerOptions& o = place_.options;
  const BackendInfo& info = place_.backend.info();
  const ForwardBatch b = at_step(batch, step);
  LayerIo io;
  io.kind = static_cast<int32_t>(place_.kind);
  describe(tokens_, step, &io);
  CanonicalCall canonical(b, place_.model, io);
  canonical.read_from(contents_.cache(), rows_[step].keys);
  const PagedAttention& call = canonical.call();
  const Result result{call.out, call.lse.tensor, LseBase::kNatural,
                      place_.backend.lse_sink(batch.mode)};
  JudgeOptions how{.bounded = !o.outputs_alone,
                   .parts = place_.backend.merged_parts(b, limits, kind_)};
  if (o.data == RunnerData::kSelector) how.bounded = false, how.exact = true;
  const bool merged = std::ranges::any_of(how.parts, [](int32_t n) { return n > 1; });
  const Arithmetic& arithmetic = *find_arithmetic(merged ? "ours_merged" : "ours_portable");
  if (info.whole_draft) how.prefix = "step" + std::to_string(b.spec.step) + ".";
  Judgement j = canonical.dual_chunk()
                    ? judge(DualChunkCall<PagedAttention>{call, *canonical.dual_chunk()}, result,
                            arithmetic, how)
                    : judge(call, result, arithmetic, how);
  // No known mistake is one of dual chunks.
  if (o.diagnose && !j.findings.ok() && !canonical.dual_chunk()) {
    const CanonicalCall in_pools(b, place_.model, io);
    const std::vector<Explanation> all =
        diagnose(scenes_.of(b, in_pools), result, arithmetic,
                 {.exact = how.exact, .parts = how.parts, .unwritten = true, .of_many = true});
    for (Finding& f : j.findings.findings()) f.diagnosis = all;
  }
  Status status = check_stored(batch, step);
  status.add(std::move(j.findings));
  return status;
}

Status DenseWorld::check_stored(const ForwardBatch& /*batch*/, size_t step) const {
  Status status = check_stored(rows_[step]);
  if (step > 0 || !status.ok()) return status;
  status.add(check_still());
  status.add(check_sink());
  return status;
}

}  // namespace shadowgraph
