#include "c_api/batch.h"

#include <bit>
#include <memory>
#include <optional>
#include <utility>

#include "attn/row_keys.h"
#include "attn/validate/batch_check.h"
#include "c_api/errors.h"
#include "c_api/tensors.h"
#include "check/traces/trace_names.h"

using namespace shadowgraph;

namespace {

template <class T>
constexpr DLDataType kTypeOf = {kDLInt, 8 * sizeof(T), 1};
template <>
constexpr DLDataType kTypeOf<uint8_t> = {kDLUInt, 8, 1};

}  // namespace

template <class T>
void sg_batch::show(const char* name, const std::vector<T>& values, int64_t width) {
  const int64_t size = std::ssize(values);
  std::vector<int64_t> shape = {size};
  if (width > 0) shape = {size / width, width};
  arrays.emplace(name, Array{kTypeOf<T>, values.data(), std::move(shape)});
}

sg_batch::sg_batch(Step of, int32_t tokens_of_a_page, int32_t pages)
    : step(std::move(of)),
      page_size(tokens_of_a_page),
      pool_pages(pages),
      mode(name_of(step.mode)) {
  const ForwardBatch batch = step.batch();
  truth_ = testing::truth_of(batch);
  key_indptr_ = {0};
  for (size_t row = 0; row < truth_.keys.size(); ++row) {
    prefix_lens_.push_back(truth_.kv_lens[row] - truth_.q_lens[row]);
    keys_.insert(keys_.end(), truth_.keys[row].begin(), truth_.keys[row].end());
    key_indptr_.push_back(static_cast<int32_t>(keys_.size()));
  }
  show("prefix_lens", prefix_lens_), show("q_lens", truth_.q_lens), show("kv_lens", truth_.kv_lens);
  show("cu_seqlens_q", truth_.cu_seqlens_q), show("key_indptr", key_indptr_), show("keys", keys_);
  show("stored", truth_.stored), show("mask", truth_.mask);
  show("req_pool_indices", step.req_pool_indices), show("seq_lens", step.seq_lens);
  show("extend_lens", step.extend_lens), show("orig_seq_lens", step.orig_seq_lens);
  show("encoder_lens", step.encoder_lens), show("full_to_swa", step.full_to_swa);
  show("out_cache_loc", step.out_cache_loc), show("positions", step.positions);
  show("custom_mask", step.custom_mask), show("req_to_token", step.req_to_token, step.width);
  const bool prefixes = step.seq_lens_kind == SeqLensKind::kPrefix;
  numbers = {{"page_size", page_size},
             {"pool_pages", pool_pages},
             {"requests", batch.size()},
             {"rows", truth_.rows()},
             {"topk", step.draft.topk},
             {"num_steps", step.draft.num_steps},
             {"num_draft_tokens", step.draft.num_draft_tokens},
             {"draft_step", step.draft_step},
             {"seq_lens_are_prefixes", prefixes ? 1 : 0}};
  const auto list = [](std::span<const int32_t> values) {
    std::string s;
    for (const int32_t v : values) s += (s.empty() ? "" : ", ") + std::to_string(v);
    return "[" + s + "]";
  };
  text = mode + ", page_size " + std::to_string(page_size) + ", prefix_lens " + list(prefix_lens_) +
         ", q_lens " + list(truth_.q_lens);
}

namespace shadowgraph::c_api {
namespace {

std::optional<ForwardMode> mode_of(const char* name) {
  for (int i = 0; name != nullptr && i < kNumForwardModes; ++i)
    if (name_of(static_cast<ForwardMode>(i)) == name) return static_cast<ForwardMode>(i);
  return std::nullopt;
}

std::vector<std::string> all_modes() {
  std::vector<std::string> names;
  for (int i = 0; i < kNumForwardModes; ++i)
    names.emplace_back(name_of(static_cast<ForwardMode>(i)));
  return names;
}

template <class Map>
std::vector<std::string> names_of(const Map& named) {
  std::vector<std::string> names;
  for (const auto& [name, value] : named) names.push_back(name);
  return names;
}

/// Reads the parameters into a step, field by field.
class BatchReader {
 public:
  BatchReader(const sg_batch_params& params, ForwardMode mode, Status* status)
      : p_(params), status_(*status), reader_(status) {
    step_.mode = mode;
  }

  Step read() {
    step_.seq_lens_kind = p_.seq_lens_kind == SG_LENS_FULL     ? SeqLensKind::kFull
                          : p_.seq_lens_kind == SG_LENS_PREFIX ? SeqLensKind::kPrefix
                                                               : usual_seq_lens_kind(step_.mode);
    step_.draft = {p_.topk == 0 ? 1 : p_.topk, p_.num_steps, p_.num_draft_tokens};
    step_.draft_step = p_.draft_step;
    step_.extend_lens = reader_.copied<int32_t>("q_lens", p_.q_lens);
    step_.orig_seq_lens = reader_.copied<int32_t>("orig_seq_lens", p_.orig_seq_lens);
    step_.encoder_lens = reader_.copied<int32_t>("encoder_lens", p_.encoder_lens);
    step_.out_cache_loc = reader_.copied<int64_t>("out_cache_loc", p_.out_cache_loc);
    step_.positions = reader_.copied<int64_t>("positions", p_.positions);
    step_.full_to_swa = reader_.copied<int64_t>("full_to_swa", p_.full_to_swa);
    step_.custom_mask = reader_.copied<uint8_t>("custom_mask", p_.custom_mask);
    if (p_.keys != nullptr || p_.key_indptr != nullptr)
      read_keys();
    else
      read_table();
    if (p_.page_size < 1 || !std::has_single_bit(static_cast<uint32_t>(p_.page_size)))
      reader_.fail("pool.shape", "page_size", "a power of two", std::to_string(p_.page_size));
    if (p_.pool_pages < 0)
      reader_.fail("pool.shape", "pool_pages", ">= 0", std::to_string(p_.pool_pages));
    if (status_.ok()) status_ = in_words_of_c(validate(step_.batch()));
    if (step_.mode == ForwardMode::kDecode) check_decode();
    if (status_.ok()) add_slots();
    return std::move(step_);
  }

 private:
  Status in_words_of_c(Status status) const {
    for (Finding& f : status.findings()) {
      if (f.where.field == "extend_lens") f.where.field = "q_lens";
      if (f.where.field == "spec.step") f.where.field = "draft_step";
      if (f.where.field == "spec.num_draft_tokens") f.where.field = "num_draft_tokens";
      if (f.where.field == "seq_lens" && p_.keys != nullptr)
        f.where.field = "keys", f.got += " tokens";
      if (f.id != LawId("len.batch").law().id) continue;
      f.expected += ", one for each request";
      f.got = f.got == "0" ? "missing" : "a list of " + f.got;
    }
    return status;
  }

  void check_decode() {
    for (size_t i = 0; i < step_.extend_lens.size(); ++i)
      if (step_.extend_lens[i] != 1)
        status_.add(make_finding("len.q_extent", at("q_lens", static_cast<int64_t>(i)),
                                 "1, of a decode; an extend or a mixed step has more",
                                 std::to_string(step_.extend_lens[i])));
  }

  void need(const char* name, const DLTensor* t) {
    if (t == nullptr) reader_.fail("input.null", name, "a tensor", "NULL");
  }

  void read_table() {
    need("req_to_token", p_.req_to_token), need("req_pool_indices", p_.req_pool_indices);
    need("seq_lens", p_.seq_lens);
    step_.req_to_token = reader_.copied<int32_t>("req_to_token", p_.req_to_token, 2);
    step_.width = status_.ok() ? p_.req_to_token->shape[1] : 0;
    step_.req_pool_indices = reader_.copied<int32_t>("req_pool_indices", p_.req_pool_indices);
    step_.seq_lens = reader_.copied<int32_t>("seq_lens", p_.seq_lens);
    // Without a column no request may have a key.
    if (status_.ok() && step_.width == 0) step_.width = 1, step_.req_to_token.clear();
  }

  /// Request i becomes row i of a table.
  void read_keys() {
    need("key_indptr", p_.key_indptr), need("keys", p_.keys);
    const std::vector<int32_t> indptr = reader_.copied<int32_t>("key_indptr", p_.key_indptr);
    const std::vector<int32_t> keys = reader_.copied<int32_t>("keys", p_.keys);
    if (!status_.ok()) return;
    const int64_t batch = std::max<int64_t>(0, std::ssize(indptr) - 1);
    TensorCheck check(&status_);
    if (!check_indptr(check, "key_indptr", indptr, batch, {std::ssize(keys), "keys"})) return;
    step_.width = 1;
    for (size_t i = 0; i + 1 < indptr.size(); ++i) {
      step_.req_pool_indices.push_back(static_cast<int32_t>(i));
      step_.seq_lens.push_back(indptr[i + 1] - indptr[i]);
      step_.width = std::max<int64_t>(step_.width, step_.seq_lens.back());
    }
    step_.req_to_token.resize(static_cast<size_t>(batch * step_.width));
    for (size_t i = 0; i + 1 < indptr.size(); ++i)
      std::copy(keys.begin() + indptr[i], keys.begin() + indptr[i + 1],
                step_.req_to_token.begin() + static_cast<int64_t>(i) * step_.width);
    step_.seq_lens_kind = SeqLensKind::kFull;
  }

  /// New tokens are a row's last keys, and are stored there if nobody says otherwise; a draft's
  /// branches have slots of more steps.
  void add_slots() {
    if (!step_.out_cache_loc.empty() || step_.mode == ForwardMode::kDraftDecode) return;
    const std::vector<int32_t> stored = testing::truth_of(step_.batch()).stored;
    step_.out_cache_loc.assign(stored.begin(), stored.end());
  }

  const sg_batch_params& p_;
  Status& status_;
  TensorReader reader_;
  Step step_;
};

}  // namespace
}  // namespace shadowgraph::c_api

using namespace shadowgraph::c_api;

extern "C" {

sg_status sg_batch_new(const sg_batch_params* params, sg_batch** batch, sg_report** report) {
  return guarded(report, [&]() -> sg_status {
    if (batch == nullptr) return fail(SG_USAGE, "batch is NULL");
    *batch = nullptr;
    sg_batch_params p;
    if (!take("params", params, &p)) return SG_USAGE;
    const std::optional<ForwardMode> mode = mode_of(p.mode);
    if (!mode) {
      const std::string word = p.mode == nullptr ? "NULL" : p.mode;
      return fail_word("params.mode", word, all_modes(), meant_by(word, all_modes()));
    }
    if (p.seq_lens_kind < SG_LENS_USUAL || p.seq_lens_kind > SG_LENS_PREFIX)
      return fail_word("params.seq_lens_kind", std::to_string(p.seq_lens_kind),
                       {"SG_LENS_USUAL (0)", "SG_LENS_FULL (1)", "SG_LENS_PREFIX (2)"});
    Status status;
    Step step = BatchReader(p, *mode, &status).read();
    if (status.ok())
      *batch = std::make_unique<sg_batch>(std::move(step), p.page_size, p.pool_pages).release();
    return hand_out(status, SG_BAD_INPUT, report);
  });
}

const char* sg_batch_mode(const sg_batch* batch) {
  return batch == nullptr ? "" : batch->mode.c_str();
}

const char* sg_batch_text(const sg_batch* batch) {
  return batch == nullptr ? "" : batch->text.c_str();
}

sg_status sg_batch_number(const sg_batch* batch, const char* name, int64_t* out) {
  return guarded(nullptr, [&]() -> sg_status {
    if (batch == nullptr || name == nullptr || out == nullptr)
      return fail(SG_USAGE, "batch, name or out is NULL");
    const auto it = batch->numbers.find(name);
    if (it == batch->numbers.end()) return fail_word("name", name, names_of(batch->numbers));
    *out = it->second;
    return SG_OK;
  });
}

sg_status sg_batch_array(const sg_batch* batch, const char* name, DLTensor* out) {
  return guarded(nullptr, [&]() -> sg_status {
    if (batch == nullptr || name == nullptr || out == nullptr)
      return fail(SG_USAGE, "batch, name or out is NULL");
    const auto it = batch->arrays.find(name);
    if (it == batch->arrays.end()) return fail_word("name", name, names_of(batch->arrays));
    const sg_batch::Array& array = it->second;
    // DLPack has no constant tensors; the header says that these are.
    *out = {const_cast<void*>(array.data),
            {kDLCPU, 0},
            static_cast<int>(array.shape.size()),
            array.type,
            const_cast<int64_t*>(array.shape.data()),
            nullptr,
            0};
    return SG_OK;
  });
}

void sg_batch_free(sg_batch* batch) { delete batch; }

}  // extern "C"
