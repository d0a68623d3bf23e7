// Kernel vectors with faults: what is named, and what is left out.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "io/curated_vectors.h"
#include "io/recorded/case_tensors.h"

namespace shadowgraph::bad_vectors_test {
namespace {

/// Fields that no bad value may stand in.
constexpr const char* kFields[] = {"num_qo_heads",
                                   "num_kv_heads",
                                   "head_dim",
                                   "head_dim_ckv",
                                   "head_dim_kpe",
                                   "head_dim_qk",
                                   "head_dim_v",
                                   "page_size",
                                   "batch",
                                   "num_states",
                                   "lse_base",
                                   "lse_layout",
                                   "q_layout",
                                   "sm_scale",
                                   "q_len",
                                   "q_lens",
                                   "kv_lens",
                                   "extend_lens",
                                   "prefix_lens",
                                   "kv_lens_before",
                                   "append_len",
                                   "softcap",
                                   "window_left",
                                   "window_right",
                                   "attention_chunk",
                                   "causal",
                                   "sinks",
                                   "gpu",
                                   "k_scale",
                                   "v_scale",
                                   "kv_layout",
                                   "dtype",
                                   "kv_dtype",
                                   "num_splits_launched",
                                   "splits_per_request",
                                   "kv_len",
                                   "topk",
                                   "topk_length",
                                   "attn_sink"};

TEST(KernelVectors, BadMetadataFieldIsNamed) {
  const Json bad_values[] = {
      nullptr, -7, -0.5, 1e300, 9223372036854775808u, "NaN", Json::array({-1}), Json::object()};
  for (const auto& [id, file] : one_case_per_kind()) {
    const Json metadata = Json::parse(file.metadata.at(id));
    for (const char* field : kFields) {
      if (!metadata.contains(field)) continue;
      const std::string kind = metadata.value("kind", "");
      for (const Json& value : bad_values) {
        // A scale may be as large as a float.
        if (metadata[field].is_number_float() && value.is_number_unsigned()) continue;
        SafetensorsFile changed = file;
        Json patched = metadata;
        patched[field] = value;
        changed.metadata[id] = patched.dump();
        const Parsed p = parse(changed);
        EXPECT_TRUE(names(p.status, field))
            << id << ' ' << kind << ' ' << field << " = " << value << ": " << p.status.to_string();
        EXPECT_TRUE(p.cases.empty());
      }
    }
  }
}

TEST(KernelVectors, NaNInMetadataIsAFindingAtItsField) {
  for (const auto& [id, file] : one_case_per_kind()) {
    SafetensorsFile changed = file;
    std::string& text = changed.metadata[id];
    const size_t at = text.find(':', text.find("\"sm_scale\"")) + 1;
    text.replace(at, text.find_first_of(",}", at) - at, "NaN");
    const Parsed p = parse(changed);
    ASSERT_EQ(p.status.findings().size(), 1u) << p.status.to_string();
    EXPECT_EQ(p.status.findings()[0].id, "vector.case");
    EXPECT_EQ(p.status.findings()[0].where.field, "sm_scale");
    EXPECT_EQ(p.status.findings()[0].case_id, "test#" + id);
  }
}

TEST(KernelVectors, MissingFieldsAreAllNamedAtOnce) {
  for (const auto& [id, file] : one_case_per_kind()) {
    SafetensorsFile changed = file;
    Json metadata = Json::parse(file.metadata.at(id));
    std::vector<const char*> gone;
    for (const char* field : {"num_qo_heads", "batch", "sm_scale", "topk"})
      if (metadata.erase(field) > 0) gone.push_back(field);
    EXPECT_GE(gone.size(), 3U);
    changed.metadata[id] = metadata.dump();
    const Status status = parse(changed).status;
    for (const char* field : gone) EXPECT_TRUE(names(status, field)) << status.to_string();
  }
}

/// Tensors that a case may lack.
bool is_optional(const std::string& name, const RecordedCase& v) {
  return name == "out_ref" || name == "lse_ref" || name == "lse_gpu" || name.ends_with("lse") ||
         (name == "qo_indptr" && v.kind.find("decode") != std::string::npos);
}

TEST(KernelVectors, MissingOrMistypedTensorIsNamed) {
  for (const auto& [id, file] : one_case_per_kind()) {
    const RecordedCase whole = parse(file).cases.at(0);
    for (const auto& [full_name, view] : file.tensors) {
      const std::string name = full_name.substr(id.size() + 1);
      SafetensorsFile missing = file, mistyped = file, reshaped = file;
      missing.tensors.erase(full_name);
      mistyped.tensors[full_name].dtype = view.dtype == DType::kI64 ? DType::kF64 : DType::kI64;
      reshaped.tensors[full_name].shape[view.rank - 1] += 1;
      if (!is_optional(name, whole) && !(whole.recorded.empty() && name.ends_with("_ref"))) {
        EXPECT_TRUE(names(parse(missing).status, name)) << id << ' ' << whole.kind << ' ' << name;
      }
      EXPECT_TRUE(names(parse(mistyped).status, name)) << id << ' ' << whole.kind << ' ' << name;
      // Page tables may have any width.
      if (name != "page_table" && name != "block_table") {
        EXPECT_TRUE(names(parse(reshaped).status, name)) << id << ' ' << whole.kind << ' ' << name;
      }
    }
  }
}

TEST(KernelVectors, LengthsInTensorsAreThoseOfTheMetadata) {
  for (const auto& [id, file] : one_case_per_kind()) {
    for (const auto& [full_name, view] : file.tensors) {
      const std::string name = full_name.substr(id.size() + 1);
      const bool ids = name.ends_with("indices") || name == "page_table" || name == "block_table";
      if (view.dtype != DType::kI32 || ids) continue;
      for (const int32_t value : {INT32_MIN, -1, INT32_MAX}) {
        std::vector<int32_t> changed(static_cast<size_t>(view.numel()));
        std::memcpy(changed.data(), view.data, changed.size() * sizeof(int32_t));
        changed.back() = value;
        SafetensorsFile patched = file;
        patched.tensors[full_name].data = reinterpret_cast<const std::byte*>(changed.data());
        const Status status = parse(patched).status;
        ASSERT_EQ(status.findings().size(), 1u) << id << ' ' << name << ": " << status.to_string();
        EXPECT_EQ(status.findings()[0].where.field, name);
        EXPECT_EQ(status.findings()[0].where.row, std::ssize(changed) - 1);
      }
    }
  }
}

TEST(KernelVectors, PageIdsAreCheckedBeforeTheReaderFollowsThem) {
  for (const auto& [id, file] : one_case_per_kind()) {
    if (parse(file).cases[0].kind != "swa_merge") continue;
    for (const int32_t value : {-1, INT32_MIN, INT32_MAX}) {
      const ConstTensorView& view = file.tensors.at(id + "/kv_indices");
      const std::vector<int32_t> ids(static_cast<size_t>(view.numel()), value);
      SafetensorsFile patched = file;
      patched.tensors[id + "/kv_indices"].data = reinterpret_cast<const std::byte*>(ids.data());
      EXPECT_TRUE(names(parse(patched).status, "kv_indices"));
    }
  }
}

TEST(KernelVectors, ChosenKeysAreSlotsOrNone) {
  const auto [id, file] = case_of_kind("sparse_prefill");
  const ConstTensorView& view = file.tensors.at(id + "/indices");
  const auto slots = static_cast<int32_t>(file.tensors.at(id + "/kv").shape[0]);
  std::vector<int32_t> changed(static_cast<size_t>(view.numel()));
  SafetensorsFile patched = file;
  patched.tensors[id + "/indices"].data = reinterpret_cast<const std::byte*>(changed.data());
  const int64_t width = view.shape[view.rank - 1];
  for (const int32_t value : {-2, -1, slots - 1, slots, INT32_MIN, INT32_MAX}) {
    for (const int64_t at : {int64_t{0}, width, width - 1}) {  // the last: behind the length
      std::memcpy(changed.data(), view.data, changed.size() * sizeof(int32_t));
      changed[static_cast<size_t>(at)] = value;
      const bool good = (value >= -1 && value < slots) || at == width - 1;
      const Status status = parse(patched).status;
      ASSERT_EQ(status.findings().size(), good ? 0U : 1U) << value << ' ' << status.to_string();
      if (good) continue;
      EXPECT_EQ(status.findings()[0].where.field, "indices");
      EXPECT_EQ(status.findings()[0].where.row, at / width);
    }
  }
}

TEST(KernelVectors, PackedAndPlainMaskMustAgree) {
  for (const auto& [id, file] : one_case_per_kind()) {
    if (parse(file).cases[0].kind != "custom_mask") continue;
    const ConstTensorView& mask = file.tensors.at(id + "/custom_mask");
    for (int64_t pair = 0; pair < mask.numel(); ++pair) {
      std::vector<std::byte> changed(mask.data, mask.data + mask.numel());
      changed[static_cast<size_t>(pair)] ^= std::byte{1};
      SafetensorsFile patched = file;
      patched.tensors[id + "/custom_mask"].data = changed.data();
      EXPECT_TRUE(names(parse(patched).status, "packed_mask")) << pair;
    }
  }
}

TEST(KernelVectors, QueriesOfEightBitsAreRefused) {
  int cases = 0;
  for (auto [id, file] : one_case_per_kind()) {
    if (!Json::parse(file.metadata.at(id)).contains("dtype")) continue;
    ++cases;
    set_field(file, id, "dtype", "e4m3fn");
    EXPECT_TRUE(names(parse(file).status, "dtype")) << id;
  }
  EXPECT_GT(cases, 3);
}

TEST(KernelVectors, TensorsOfACaseThatSaysNothingAreNamed) {
  for (auto [id, file] : one_case_per_kind()) {
    file.metadata.clear();
    const Parsed p = parse(file);
    ASSERT_EQ(p.status.findings().size(), 1U) << id;
    EXPECT_EQ(p.status.findings()[0].case_id, "test#" + id);
    EXPECT_EQ(p.status.findings()[0].where.field, "__metadata__");
    EXPECT_EQ(p.status.findings()[0].got, "missing");
  }
}

TEST(KernelVectors, ATensorThatIsNotReadableSaysWhy) {
  for (const auto& [id, file] : one_case_per_kind()) {
    for (const char* name : {"q", "v"}) {
      SafetensorsFile changed = file;
      if (changed.tensors.erase(id + '/' + name) == 0) continue;
      changed.skipped = {{id + "/other", "of dtype C64"}, {id + '/' + name, "of dtype F4"}};
      const Status status = parse(changed).status;
      ASSERT_FALSE(status.ok()) << id;
      EXPECT_EQ(status.findings()[0].where.field, name);
      EXPECT_TRUE(status.findings()[0].got.find("not readable") != std::string::npos)
          << status.to_string();
    }
  }
}

TEST(KernelVectors, KeysAndValuesHaveAsManyPages) {
  int cases = 0;
  for (auto [id, file] : one_case_per_kind()) {
    const auto v = file.tensors.find(id + "/v_cache");
    if (v == file.tensors.end()) continue;
    ++cases;
    v->second.shape[0] -= 1;
    EXPECT_TRUE(names(parse(file).status, "v_cache")) << id;
  }
  EXPECT_GT(cases, 3);
}

TEST(KernelVectors, ARequestOfADecodeBatchHasOneQuery) {
  auto [id, file] = case_of_kind("mla_decode");
  const Json batch = Json::parse(file.metadata.at(id)).at("batch");
  for (const int q_len : {1, 2}) {
    set_field(file, id, "q_lens", Json(std::vector<int>(batch.get<size_t>(), q_len)));
    EXPECT_EQ(names(parse(file).status, "q_lens"), q_len == 2) << q_len;
  }
}

TEST(KernelVectors, AMaskOfMoreBytesThanAnyVectorHasIsRefusedBeforeMemoryIsTaken) {
  const SafetensorsFile file;
  const JsonValue metadata;
  const std::string name = "test", id = "case000";
  const auto bytes_of = [&](int32_t q_len, bool* good) {
    CaseReader reader(file, name, id, metadata);
    const std::vector<int32_t> q_lens = {1, q_len}, kv_lens = {1, 1 << 16};
    const CustomMask mask = packed_mask(reader, "attention_chunk", q_lens, kv_lens,
                                        [](size_t, int64_t, int64_t) { return true; });
    *good = reader.ok();
    if (!*good) {
      EXPECT_TRUE(names(reader.take_status(), "attention_chunk"));
    }
    return mask.data.size();
  };
  bool good = false;
  EXPECT_EQ(bytes_of(1 << 16, &good), 0U);
  EXPECT_FALSE(good);
  EXPECT_EQ(bytes_of(1, &good), 1U + (1 << 13));
  EXPECT_TRUE(good);
}

TEST(KernelVectors, UnknownKindIsSkippedByNameNeverGuessed) {
  SafetensorsFile file;
  file.metadata["case000"] = R"({"kind":"tomorrow's","stats":{"deep":{"er":1}}})";
  file.metadata["case001"] = R"({"mode":"sideways"})";
  file.metadata["format"] = "pt";
  const Parsed p = parse(file);
  EXPECT_EQ(p.status.to_string(), "ok");
  EXPECT_TRUE(p.cases.empty());
  EXPECT_EQ(p.skipped, (std::vector<SkippedCase>{{"case000", "tomorrow's", "kind not known yet"},
                                                 {"case001", "sideways", "kind not known yet"}}));
}

TEST(KernelVectors, KindOrModeThatIsNoStringIsAFinding) {
  SafetensorsFile file;
  file.metadata["case000"] = R"({"kind":7})";
  file.metadata["case001"] = R"({"mode":["decode"]})";
  const Parsed p = parse(file);
  EXPECT_TRUE(p.skipped.empty());
  ASSERT_EQ(p.status.findings().size(), 2u);
  EXPECT_EQ(p.status.findings()[0].where.field, "kind");
  EXPECT_EQ(p.status.findings()[1].where.field, "mode");
}

TEST(KernelVectors, FileWithoutCasesIsOfAnotherKind) {
  SafetensorsFile file;
  const float weight = 0;
  file.tensors["weight"] = ConstTensorView(&weight, DType::kF32, {1});
  const Parsed p = parse(file);
  ASSERT_EQ(p.status.findings().size(), 1u);
  EXPECT_EQ(p.status.findings()[0].id, "io.kind");
}

TEST(KernelVectors, BadCaseIsLeftOutAndTheOthersAreRead) {
  SafetensorsFile file = curated("attention.safetensors");
  const Parsed whole = parse(file);
  file.metadata[whole.cases[0].id] = "{}}";
  Json second = Json::parse(file.metadata[whole.cases[1].id]);
  second["batch"] = -1;
  file.metadata[whole.cases[1].id] = second.dump();
  const Parsed p = parse(file);
  std::set<std::string> refused;
  for (const Finding& f : p.status.findings()) refused.insert(f.case_id);
  EXPECT_EQ(refused, (std::set<std::string>{"test#" + whole.cases[0].id,  //
                                            "test#" + whole.cases[1].id}));
  ASSERT_EQ(p.cases.size(), whole.cases.size() - 2);
  for (size_t i = 0; i < p.cases.size(); ++i) EXPECT_EQ(p.cases[i].id, whole.cases[i + 2].id);
}

TEST(KernelVectors, FindingNamesItsCaseHoweverLongThePath) {
  SafetensorsFile file = curated("attention.safetensors");
  file.metadata["case000"] = "{}}";
  const std::string path(1000, 'x');
  std::vector<RecordedCase> cases;
  std::vector<SkippedCase> skipped;
  const Status status = parse_recorded_cases(file, path, &cases, &skipped);
  ASSERT_EQ(status.findings().size(), 1u);
  EXPECT_EQ(status.findings()[0].case_id, path + "#case000");
}

}  // namespace
}  // namespace shadowgraph::bad_vectors_test
