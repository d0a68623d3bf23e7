// Recurrent vectors with faults: what is named, and what is left out.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>

#include "io/curated_linear.h"

namespace shadowgraph::bad_linear_vectors_test {
namespace {

/// A file with one element of a tensor changed, and the memory of that tensor.
struct Patched {
  SafetensorsFile file;
  std::vector<std::byte> bytes;
};

template <class T>
Patched with_element(const SafetensorsFile& file, const std::string& tensor, int64_t at, T value) {
  Patched p{file, {}};
  ConstTensorView& view = p.file.tensors.at(tensor);
  EXPECT_EQ(size_of(view.dtype), sizeof(T)) << tensor;
  p.bytes.assign(view.data, view.data + static_cast<size_t>(view.numel()) * sizeof(T));
  std::memcpy(p.bytes.data() + static_cast<size_t>(at) * sizeof(T), &value, sizeof(T));
  view.data = p.bytes.data();
  return p;
}

/// One finding, at the row of that tensor.
void expect_row_named(const SafetensorsFile& file, const std::string& name, int64_t row,
                      const std::string& what) {
  const Parsed p = parse(file);
  ASSERT_EQ(p.status.findings().size(), 1U) << what << ": " << p.status.to_string();
  const Finding& finding = p.status.findings()[0];
  EXPECT_EQ(finding.id, "vector.tensor") << what;
  EXPECT_EQ(finding.where.field, name) << what;
  EXPECT_EQ(finding.where.row, row) << what;
  EXPECT_TRUE(p.cases.empty()) << what;
}

void expect_field_named(const LinearFile& one, const char* field, const Json& value) {
  SafetensorsFile changed = one.file;
  set_field(changed, one.id, field, value);
  const Parsed p = parse(changed);
  EXPECT_TRUE(names(p.status, field))
      << one.kind << ' ' << field << " = " << value << ": " << p.status.to_string();
  EXPECT_TRUE(p.cases.empty()) << one.kind << ' ' << field << " = " << value;
}

/// May the field be that?
bool is_good(const std::string& field, const Json& before, const Json& value) {
  if (before.is_number_float() && value.is_number_unsigned()) return true;  // as large as a float
  if (field == "hazard" || field == "which") return value.is_string();
  if (field == "activation") return value.is_null();
  if (field == "orig_lens") return before.is_null() && value.is_null();
  if (field != "lower_bound") return false;
  return before.is_null() ? value.is_null() : value == -7 || value == -0.5;
}

/// Fields that no bad value may stand in.
// clang-format off
constexpr const char* kFields[] = {
    "B", "D", "H", "Hk", "HV", "K", "V", "activation", "chunk", "chunk_len", "chunk_size",
    "dim", "dt_limit", "dt_softplus", "dstate", "dtype", "eps", "gate", "hazard", "headdim",
    "heads_layers", "kda", "l2norm", "lens", "local_size", "n", "ngroups", "nheads",
    "chunk_sizes", "initial_state", "pad_out", "orig_lens", "original_max_position", "packed",
    "pad_rows", "prefix", "prep_initial_states", "reference_only", "scale", "slots", "steps",
    "tree", "state_dtype", "cache_steps_allocated", "width", "lower_bound", "zero_init_rows",
    "page_size", "heads", "topk", "which", "ratio", "head_dim", "rope_dim", "rms_eps",
    "overlap", "T", "kv", "fp8", "sm_scale", "extra_page_size", "page_bytes", "prefill", "lse",
};
// clang-format on

TEST(LinearVectors, BadMetadataFieldIsNamed) {
  const Json bad_values[] = {
      nullptr, -7, -0.5, 1e300, 9223372036854775808u, "NaN", Json::array({-1}), Json::object()};
  for (const LinearFile& one : one_linear_case_per_kind()) {
    const Json metadata = Json::parse(one.file.metadata.at(one.id));
    const bool one_sequence = one.kind.find("minimax_prefill") != std::string::npos;
    for (const char* field : kFields) {
      const auto at = metadata.find(field);
      if (at == metadata.end()) continue;
      for (const Json& value : bad_values)
        if (!is_good(field, *at, value)) expect_field_named(one, field, value);
    }
    if (one_sequence) expect_field_named(one, "lens", Json::array({1, 1}));
  }
}

TEST(LinearVectors, AFieldThatDoesNotFitTheOthersIsNamed) {
  struct Misfit {
    const char *kind, *field;
    Json value;
  };
  const Misfit misfits[] = {
      {"gdn decode_pad", "HV", 3},
      {"gdn decode_pad", "kda", true},
      {"gdn decode_pad", "pad_out", "something else"},
      {"gdn decode_pad", "pad_rows", Json::array({4, 1})},
      {"gdn decode_pad", "pad_rows", Json::array({1, 1})},
      {"gdn decode_pad", "pad_rows", Json::array({1, 5})},
      {"gdn prefill", "zero_init_rows", Json::array({2})},
      {"kda decode_pad", "kda", false},
      {"kda prefill", "gate", "raw: something else"},
      {"kda prefill", "lower_bound", -5.0},
      {"kda prefill", "dtype", "torch.float64"},
      {"kda prefill_lower_bound", "lower_bound", 0.0},
      {"kda prefill_lower_bound", "lower_bound", nullptr},
      {"mamba2 scan", "ngroups", 3},
      {"mamba2 scan", "prep_initial_states", true},
      {"mamba2 scan_bf16_state", "prep_initial_states", false},
      {"mamba2 scan", "dt_softplus", false},
      {"mamba2 scan", "dt_limit", Json::array({0.0, 1.0})},
      {"mamba2 scan", "dt_limit", Json::array({0.5, "inf"})},
      {"mamba2 scan", "dt_limit", Json::array({0.0})},
      {"mamba2 update", "steps", 2},
      {"mamba2 chunk_meta", "chunk_sizes", Json(std::vector<int>(12, 0))},
      {"conv conv_update", "width", 9},
      {"conv conv_update", "width", 1},
      {"conv conv_update", "activation", "relu"},
      {"dualchunk scaled", "Hk", 3},
      {"dualchunk scaled", "chunk_len", 25},
      {"dualchunk scaled", "chunk_len", 0},
      {"dualchunk scaled", "orig_lens", nullptr},
      {"dualchunk scaled", "orig_lens", Json::array({60})},
      {"dualchunk decode", "prefix", Json::array({0, 1})},
      {"lightning seg_verify", "lens", Json::array({2, 3})},
      {"lightning seg_verify", "mode", "sideways"},
      {"dsa act_quant", "block", 64},
      {"dsa act_quant", "scale_fmt", "ue8m1"},
      {"dsa act_quant", "scale_fmt", 7},
      {"dsa indexer_logits", "page_size", 32},
      {"dsv4 c4_decode", "ratio", 128},
      {"dsv4 c128_decode", "ratio", 4},
      {"dsv4 pool_norm_rope", "ratio", 8},
      {"dsv4 pool_norm_rope", "overlap", false},
      {"dsv4 pool_norm_rope", "rope_dim", 15},
      {"dsv4 pool_norm_rope", "rope_dim", 66},
      {"lightning slopes", "heads_layers", Json::array()},
      {"lightning slopes", "heads_layers", Json::array({Json::array({8, 0})})},
      {"lightning slopes", "heads_layers", Json::array({Json::array({8})})},
  };
  for (const Misfit& m : misfits) expect_field_named(linear_case_of_kind(m.kind), m.field, m.value);
}

TEST(LinearVectors, MissingFieldsAreAllNamedAtOnce) {
  for (const LinearFile& one : one_linear_case_per_kind()) {
    SafetensorsFile changed = one.file;
    Json metadata = Json::parse(one.file.metadata.at(one.id));
    std::vector<const char*> gone;
    for (const char* field : {"dtype", "scale", "K", "dim", "nheads", "H"})
      if (metadata.erase(field) > 0) gone.push_back(field);
    changed.metadata[one.id] = metadata.dump();
    const Status status = parse(changed).status;
    for (const char* field : gone)
      EXPECT_TRUE(names(status, field)) << one.kind << ' ' << status.to_string();
  }
}

TEST(LinearVectors, MoreRowsThanTheFileHasAreRefusedBeforeMemoryIsTaken) {
  for (const LinearFile& one : one_linear_case_per_kind()) {
    if (!Json::parse(one.file.metadata.at(one.id)).contains("B")) continue;
    for (const int rows : {1, 1 << 29, (1 << 30) - 1}) {
      SafetensorsFile changed = one.file;
      set_field(changed, one.id, "B", rows);
      const Status status = parse(changed).status;
      EXPECT_TRUE(names(status, "B") || names(status, "state_indices") ||
                  names(status, "conv_state_indices") || names(status, "indices") ||
                  names(status, "q"))
          << one.kind << ' ' << status.to_string();
    }
  }
}

/// Tensors that a case may lack.
bool may_lack(const std::string& kind, const std::string& name) {
  if (kind.starts_with("conv")) return name == "bias";
  if (kind.starts_with("mamba2")) return name == "z" || name == "chunk_states";
  if (kind.starts_with("dsv4")) return name == "attn_sink";
  const bool stored = kind == "gdn prefill";
  return stored && (name == "g_ref" || name == "beta_ref");
}

/// Tensors whose size is their own.
bool is_free(const std::string& kind, const std::string& name) {
  return kind == "mamba2 chunk_meta" || (kind == "gdn gating" && name == "a") ||
         name == "chunk_indices" || (kind.starts_with("dsv4") && name.ends_with("indices")) ||
         name == "loc";
}

TEST(LinearVectors, MissingOrMistypedTensorIsNamed) {
  for (const LinearFile& one : one_linear_case_per_kind()) {
    for (const auto& [full_name, view] : one.file.tensors) {
      const std::string name = full_name.substr(one.id.size() + 1);
      SafetensorsFile missing = one.file, mistyped = one.file, reshaped = one.file;
      missing.tensors.erase(full_name);
      mistyped.tensors[full_name].dtype = view.dtype == DType::kI64 ? DType::kF64 : DType::kI64;
      reshaped.tensors[full_name].shape[view.rank - 1] += 1;
      if (!may_lack(one.kind, name)) {
        EXPECT_TRUE(names(parse(missing).status, name)) << one.kind << ' ' << name;
      } else {
        EXPECT_TRUE(parse(missing).status.ok()) << one.kind << ' ' << name;
      }
      EXPECT_TRUE(names(parse(mistyped).status, name)) << one.kind << ' ' << name;
      if (!is_free(one.kind, name)) {
        EXPECT_TRUE(names(parse(reshaped).status, name)) << one.kind << ' ' << name;
      }
    }
  }
}

TEST(LinearVectors, OneOfTwoTensorsThatBelongTogetherIsNotEnough) {
  const LinearFile one = linear_case_of_kind("gdn prefill");
  for (const char* name : {"h", "h_ref", "g", "beta"}) {
    SafetensorsFile changed = one.file;
    changed.tensors.erase(one.id + '/' + name);
    EXPECT_TRUE(names(parse(changed).status, name)) << name;
  }
}

TEST(LinearVectors, WithoutStoredDecaysAPrefillHasItsGate) {
  auto [id, kind, file] = linear_case_of_kind("gdn prefill");
  for (const char* name : {"g", "beta", "g_ref", "beta_ref"}) file.tensors.erase(id + '/' + name);
  const Parsed p = parse(file);
  ASSERT_EQ(p.status.to_string(), "ok");
  const auto& recurrence = std::get<Recurrence>(p.cases.at(0).call);
  ASSERT_TRUE(recurrence.gate.has_value());
  EXPECT_TRUE(recurrence.gate->b.defined() && recurrence.gate->beta.defined());
  EXPECT_FALSE(recurrence.call.log_decay.defined());
}

TEST(LinearVectors, OffsetsAreTheSumsOfTheLengths) {
  int tensors = 0;
  for (const LinearFile& one : one_linear_case_per_kind()) {
    for (const char* name : {"cu_seqlens", "query_start_loc", "seq_idx"}) {
      const auto at = one.file.tensors.find(one.id + '/' + name);
      if (at == one.file.tensors.end()) continue;
      ++tensors;
      const int64_t last = at->second.numel() - 1;
      for (const int32_t value : {INT32_MIN, -1, INT32_MAX}) {
        const Patched p = at->second.dtype == DType::kI64
                              ? with_element(one.file, at->first, last, int64_t{value})
                              : with_element(one.file, at->first, last, value);
        expect_row_named(p.file, name, last, one.kind + ' ' + name);
      }
    }
  }
  EXPECT_GT(tensors, 10);
}

TEST(LinearVectors, AnIndexOutOfRangeIsNamedWithItsRow) {
  const char* indices[] = {"state_indices", "cache_indices", "conv_state_indices",
                           "intermediate_indices", "intermediate_state_indices"};
  int tensors = 0;
  for (const LinearFile& one : one_linear_case_per_kind()) {
    for (const char* name : indices) {
      const auto at = one.file.tensors.find(one.id + '/' + name);
      if (at == one.file.tensors.end()) continue;
      ++tensors;
      const bool of_draft = std::string(name).starts_with("intermediate");
      const char* pools[] = {"pool_before", "conv_state_before"};
      int32_t count = 0;
      for (const char* pool : pools)
        if (const auto p = one.file.tensors.find(one.id + '/' + pool); p != one.file.tensors.end())
          count = static_cast<int32_t>(p->second.shape[0]);
      if (of_draft)
        count = static_cast<int32_t>(one.file.tensors.at(one.id + "/inter_after").shape[0]);
      for (int64_t row = 0; row < at->second.numel(); ++row)
        for (const int32_t value : {INT32_MIN, -2, count, INT32_MAX})
          expect_row_named(with_element(one.file, at->first, row, value).file, name, row,
                           one.kind + ' ' + name + " = " + std::to_string(value));
    }
  }
  EXPECT_GT(tensors, 15);
}

/// Values of one element of a tensor, each of which is named with its row.
template <class T>
void expect_values_named(const char* kind, const char* name, int64_t at, int64_t row,
                         std::initializer_list<T> values) {
  const LinearFile one = linear_case_of_kind(kind);
  for (const T value : values)
    expect_row_named(with_element(one.file, one.id + '/' + name, at, value).file, name, row,
                     std::string(kind) + ' ' + name + " = " + std::to_string(value));
}

TEST(LinearVectors, ASlotOrPageOfTheIndexerOutsideItsPoolIsNamed) {
  expect_values_named<int64_t>("dsa index_buf", "loc", 64, 64, {INT64_MIN, -1, 256, INT64_MAX});
  expect_values_named("dsa index_buf", "page_table", 1, 1, {INT32_MIN, -1, 4, INT32_MAX});
  expect_values_named("dsa indexer_logits", "page_table", 5, 2, {INT32_MIN, -1, 6, INT32_MAX});
  expect_values_named("dsa indexer_logits", "seq_lens", 2, 2, {INT32_MIN, 64, 66, INT32_MAX});
  expect_values_named<uint8_t>("dsa indexer_logits", "valid", 64, 0, {1, 255});
  expect_values_named<uint8_t>("dsa indexer_logits", "valid", 65, 1, {0, 2});
  expect_values_named("dsa topk_transform", "topk_indices", 7, 0, {INT32_MIN, -2, 2500, INT32_MAX});
  expect_values_named("dsa topk_transform", "kv_indptr", 1, 1, {INT32_MIN, -1, 2049, INT32_MAX});
}

TEST(LinearVectors, APageOrLengthOfTheCompressorOutOfRangeIsNamed) {
  for (const char* name : {"indices", "extra"})
    expect_values_named("dsv4 c4_decode", name, 1, 1, {INT32_MIN, -1, 7, INT32_MAX});
  expect_values_named("dsv4 c4_decode", "seq_lens", 2, 2, {INT32_MIN, -1, 0, INT32_MAX});
  expect_values_named<uint8_t>("dsv4 c4_decode", "emits", 1, 1, {1, 255});
}

/// A page that no key of the row is in is not looked at.
TEST(LinearVectors, ATableIsReadAsFarAsItsRowReaches) {
  const LinearFile one = linear_case_of_kind("dsa indexer_logits");
  EXPECT_TRUE(parse(with_element(one.file, one.id + "/page_table", 1, -9).file).status.ok());
}

TEST(LinearVectors, ASlotIsMinusOneWhereItsRowIsAPadAndNowhereElse) {
  int kinds = 0;
  for (const LinearFile& one : one_linear_case_per_kind()) {
    for (const char* name : {"state_indices", "cache_indices", "conv_state_indices"}) {
      const auto at = one.file.tensors.find(one.id + '/' + name);
      if (at == one.file.tensors.end()) continue;
      ++kinds;
      const auto* slots = reinterpret_cast<const int32_t*>(at->second.data);
      for (int64_t row = 0; row < at->second.numel(); ++row)
        expect_row_named(with_element(one.file, at->first, row, slots[row] == -1 ? 0 : -1).file,
                         name, row, one.kind);
    }
  }
  EXPECT_GT(kinds, 15);
}

TEST(LinearVectors, AChosenKeyIsASlotOrNone) {
  struct List {
    const char *kind, *name, *pool;
  };
  for (const List& l : {List{"dsa sparse_mla_fp8", "indices", "kv"},
                        List{"dsv4 sparse_decode_extra", "indices", "buf"},
                        List{"dsv4 sparse_decode_extra", "extra_indices", "extra_buf"},
                        List{"dsv4 unified_decode", "kv_indices", "unified_kv"},
                        List{"dsv4 unified_prefill", "extend_indices", "extend_kv"}}) {
    const LinearFile one = linear_case_of_kind(l.kind);
    const ConstTensorView& pool = one.file.tensors.at(one.id + '/' + l.pool);
    const auto slots = static_cast<int32_t>(pool.shape[0] * (pool.shape[1] > 9000 ? 16 : 1));
    for (const int32_t value : {INT32_MIN, -2, slots, INT32_MAX})
      expect_row_named(with_element(one.file, one.id + '/' + l.name, 0, value).file, l.name, 0,
                       std::string(l.kind) + ' ' + std::to_string(value));
    for (const int32_t value : {-1, slots - 1})
      EXPECT_TRUE(parse(with_element(one.file, one.id + '/' + l.name, 0, value).file).status.ok());
  }
}

TEST(LinearVectors, ListsOfChosenKeysEndInTheirTensor) {
  const LinearFile padded = linear_case_of_kind("dsv4 sparse_decode_extra");
  for (const char* name : {"topk_length", "extra_topk_length"})
    for (const int32_t value : {INT32_MIN, -1, 33, INT32_MAX})
      expect_row_named(with_element(padded.file, padded.id + '/' + name, 2, value).file, name, 2,
                       name);
  const LinearFile ragged = linear_case_of_kind("dsv4 unified_prefill");
  for (const char* name : {"kv_indptr", "extend_indptr"}) {
    for (const int64_t row : {0, 1, 3})
      for (const int32_t value : {INT32_MIN, -1, INT32_MAX})
        expect_row_named(with_element(ragged.file, ragged.id + '/' + name, row, value).file, name,
                         row, name);
  }
}

TEST(LinearVectors, AParentIsAnEarlierTokenOfItsRow) {
  int tensors = 0;
  for (const LinearFile& one : one_linear_case_per_kind()) {
    for (const char* name : {"parents", "parent_ref", "parent_out", "next_token", "next_sibling"}) {
      const auto at = one.file.tensors.find(one.id + '/' + name);
      if (at == one.file.tensors.end()) continue;
      ++tensors;
      const bool is_parent = std::string(name).starts_with("parent");
      const int64_t steps = at->second.shape[1], tokens = at->second.numel();
      for (int64_t token = 0; token < tokens; ++token) {
        const int64_t in_row = token % steps, row = token / steps;
        std::vector<int64_t> bad = {INT64_MIN, -2, steps, INT64_MAX};
        if (is_parent) bad.push_back(-1);
        if (is_parent && in_row > 0) bad.push_back(in_row);
        for (const int64_t value : bad)
          expect_row_named(with_element(one.file, at->first, token, value).file, name, row,
                           one.kind + ' ' + name + " = " + std::to_string(value));
      }
    }
  }
  EXPECT_EQ(tensors, 3 + 4);
}

TEST(LinearVectors, AFlagIsZeroOrOne) {
  int tensors = 0;
  for (const LinearFile& one : one_linear_case_per_kind()) {
    for (const char* name : {"has_initial_state", "has_initial_states", "out_valid"}) {
      const auto at = one.file.tensors.find(one.id + '/' + name);
      if (at == one.file.tensors.end()) continue;
      ++tensors;
      const int64_t last = at->second.numel() - 1;
      expect_row_named(with_element(one.file, at->first, last, uint8_t{2}).file, name, last,
                       one.kind);
    }
  }
  EXPECT_GT(tensors, 5);
}

TEST(LinearVectors, ATokenIsValidWhereItsRowIsNoPad) {
  const LinearFile one = linear_case_of_kind("conv conv_prefill_pad");
  const ConstTensorView& valid = one.file.tensors.at(one.id + "/out_valid");
  for (int64_t token = 0; token < valid.numel(); ++token) {
    const auto flipped = static_cast<uint8_t>(1 - std::to_integer<int>(valid.data[token]));
    expect_row_named(with_element(one.file, one.id + "/out_valid", token, flipped).file,
                     "out_valid", token, one.kind);
  }
}

TEST(LinearVectors, ARowOfDraftTokensHasRoomForAllOfThem) {
  for (const char* kind :
       {"gdn verify_tree", "mamba2 verify_tree", "lightning seg_verify", "conv conv_update_tree"}) {
    LinearFile one = linear_case_of_kind(kind);
    const auto steps = one.file.tensors.at(one.id + "/inter_ref").shape[1];
    ConstTensorView& inter = one.file.tensors.at(one.id + "/inter_after");
    for (const int64_t allocated : {steps - 1, int64_t{0}}) {
      inter.shape[1] = allocated;
      EXPECT_TRUE(names(parse(one.file).status, "inter_after")) << kind;
    }
  }
}

TEST(LinearVectors, OffsetsOfChunkListsStartAtZeroAndDoNotFall) {
  const LinearFile one = linear_case_of_kind("mamba2 chunk_meta");
  const std::string name = one.id + "/qsl0";
  const int64_t last = one.file.tensors.at(name).numel() - 1;
  expect_row_named(with_element(one.file, name, 0, 1).file, "qsl0", 0, "first");
  expect_row_named(with_element(one.file, name, last, -1).file, "qsl0", last, "falls");
  expect_row_named(with_element(one.file, name, last, INT32_MAX).file, "qsl0", last, "large");
  SafetensorsFile empty = one.file;
  empty.tensors.at(name).shape[0] = 0;
  EXPECT_TRUE(names(parse(empty).status, "qsl0"));
}

TEST(LinearVectors, UnknownKindOrSystemIsSkippedByNameNeverGuessed) {
  SafetensorsFile file;
  file.metadata["case000"] = R"({"system":"gdn","kind":"tomorrow's"})";
  file.metadata["case001"] = R"({"system":"tomorrow's","kind":"prefill"})";
  file.metadata["case002"] = R"({"system":"dsa","kind":"sparse_mqa"})";
  file.metadata["case003"] = R"({"system":"kda","kind":"prefilled"})";
  file.metadata["case004"] = R"({"system":"kda","kind":"gating"})";
  file.metadata["format"] = "pt";
  const Parsed p = parse(file);
  EXPECT_EQ(p.status.to_string(), "ok");
  EXPECT_TRUE(p.cases.empty());
  EXPECT_EQ(p.skipped,
            (std::vector<SkippedCase>{{"case000", "gdn tomorrow's", "kind not known yet"},
                                      {"case001", "tomorrow's prefill", "kind not known yet"},
                                      {"case002", "dsa sparse_mqa", "kind not known yet"},
                                      {"case003", "kda prefilled", "kind not known yet"},
                                      {"case004", "kda gating", "kind not known yet"}}));
}

TEST(LinearVectors, ACaseWithoutSystemOrKindIsAFinding) {
  for (const char* field : {"system", "kind"}) {
    for (const Json& value : {Json(7), Json(nullptr), Json::array({"gdn"})}) {
      LinearFile one = linear_case_of_kind("gdn prefill");
      one.file.metadata["case_of_a_system"] = R"({"system":"gdn","kind":"tomorrow's"})";
      expect_field_named(one, field, value);
    }
    auto [id, kind, file] = linear_case_of_kind("gdn prefill");
    file.metadata["case_of_a_system"] = R"({"system":"gdn","kind":"tomorrow's"})";
    Json metadata = Json::parse(file.metadata.at(id));
    metadata.erase(field);
    file.metadata[id] = metadata.dump();
    EXPECT_TRUE(names(parse(file).status, field));
  }
}

TEST(LinearVectors, BadCaseIsLeftOutAndTheOthersAreRead) {
  SafetensorsFile file = curated_linear("conv");
  const Parsed whole = parse(file);
  file.metadata[whole.cases[0].id] = "{}}";
  set_field(file, whole.cases[1].id, "dim", -1);
  const Parsed p = parse(file);
  std::set<std::string> refused;
  for (const Finding& f : p.status.findings()) refused.insert(f.case_id);
  EXPECT_EQ(refused, (std::set<std::string>{"test#" + whole.cases[0].id,  //
                                            "test#" + whole.cases[1].id}));
  ASSERT_EQ(p.cases.size(), whole.cases.size() - 2);
  for (size_t i = 0; i < p.cases.size(); ++i) EXPECT_EQ(p.cases[i].id, whole.cases[i + 2].id);
}

}  // namespace
}  // namespace shadowgraph::bad_linear_vectors_test
