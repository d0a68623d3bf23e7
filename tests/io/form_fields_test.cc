// Nothing in a recorded case is passed over: what no reader takes is named.
#include "io/recorded/form_fields.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "io/curated_vectors.h"

namespace shadowgraph::form_fields_test {
namespace {

/// All curated files, below tests/data.
std::vector<std::string> all_files() {
  std::vector<std::string> files;
  for (const char* folder : {"kernels", "linear", "reports"})
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(SHADOWGRAPH_TEST_DATA "/") + folder))
      if (entry.path().extension() == ".safetensors")
        files.push_back(std::string(folder) + '/' + entry.path().filename().string());
  return files;
}

/// One case of each kind of all files, alone in its file.
std::vector<std::pair<RecordedCase, SafetensorsFile>> one_of_each_kind() {
  std::vector<std::pair<RecordedCase, SafetensorsFile>> cases;
  std::set<std::string> seen;
  for (const std::string& name : all_files()) {
    const SafetensorsFile file = curated_file(name);
    for (const RecordedCase& c : parse(file).cases)
      if (!c.same_rows && seen.insert(name + c.kind).second)
        cases.emplace_back(c, only(file, c.id));
  }
  return cases;
}

/// The one finding of the file, which has no good case.
Finding refused(const SafetensorsFile& file) {
  const Parsed p = parse(file);
  EXPECT_EQ(p.status.findings().size(), 1U) << p.status.to_string();
  EXPECT_TRUE(p.cases.empty());
  return p.status.ok() ? Finding() : p.status.findings()[0];
}

TEST(FormFields, AMemberThatNothingReadsIsNamed) {
  const auto all = one_of_each_kind();
  EXPECT_GT(all.size(), 40U);
  for (const auto& [c, file] : all) {
    SafetensorsFile changed = file;
    set_field(changed, c.id, "windowleft", 7);
    const Finding f = refused(changed);
    EXPECT_EQ(f.id, "vector.case") << c.system << c.kind;
    EXPECT_EQ(f.where.field, "windowleft");
    EXPECT_EQ(f.got, "7, which nothing reads");
  }
}

TEST(FormFields, ATensorThatNothingReadsIsNamed) {
  for (const auto& [c, file] : one_of_each_kind()) {
    SafetensorsFile changed = file;
    changed.tensors[c.id + "/alibi"] = file.tensors.begin()->second;
    EXPECT_EQ(refused(changed).where.field, "alibi") << c.system << c.kind;
    SafetensorsFile unreadable = file;
    unreadable.skipped.push_back({c.id + "/alibi", "6 axes"});
    EXPECT_EQ(refused(unreadable).got, "6 axes, which nothing reads");
  }
}

TEST(FormFields, TheNearestNameThatTheCaseLacksIsMeant) {
  auto [id, file] = case_of_kind("paged_prefill");
  SafetensorsFile misspelt = file;
  set_field(misspelt, id, "window_rihgt", 0);
  EXPECT_NE(refused(misspelt).expected.find("did you mean window_right?"), std::string::npos);
  SafetensorsFile twice = file;  // it has a window_left
  set_field(twice, id, "window_lefft", 3);
  EXPECT_EQ(refused(twice).expected.find("window_left?"), std::string::npos);
  // It has a k_cache: that is not what it lacks.
  SafetensorsFile of_heads = file;
  of_heads.tensors[id + "/softcap"] = file.tensors.at(id + "/lse");
  EXPECT_NE(refused(of_heads).expected.find("; a member has that name"), std::string::npos);
}

TEST(FormFields, WhatAnotherKindOfTheFormHasIsNotPassedOver) {
  auto [id, file] = case_of_kind("paged_prefill");
  file.tensors[id + "/custom_mask"] = file.tensors.at(id + "/qo_indptr");
  EXPECT_EQ(refused(file).expected, "a tensor that this case of flashinfer paged_prefill has");
  auto [merge, states] = case_of_kind("merge");
  set_field(states, merge, "kv_layout", "HND");
  EXPECT_EQ(refused(states).where.field, "kv_layout");
  auto [ragged, packed] = case_of_kind("ragged_prefill");
  set_field(packed, ragged, "kv_layout", "HND");
  EXPECT_EQ(refused(packed).where.field, "kv_layout");
  auto [sparse, chosen] = case_of_kind("sparse_prefill");
  set_field(chosen, sparse, "softcap", 30.0);
  EXPECT_EQ(refused(chosen).where.field, "softcap");
}

TEST(FormFields, AFaultOfTheCaseAndAnUnknownNameAreNamedAtOnce) {
  auto [id, file] = case_of_kind("decode");
  set_field(file, id, "sm_scale", -1);
  set_field(file, id, "sm_scael", 1);
  const Status status = parse(file).status;
  EXPECT_EQ(status.findings().size(), 2U) << status.to_string();
  EXPECT_TRUE(names(status, "sm_scale") && names(status, "sm_scael"));
}

TEST(FormFields, AKindThatIsMissingIsNamedWithThoseThatThereAre) {
  auto [id, file] = case_of_kind("ragged_prefill");
  Json members = Json::parse(file.metadata.at(id));
  members.erase("kind");
  file.metadata[id] = members.dump();
  const Finding f = refused(file);
  EXPECT_EQ(f.where.field, "kind");
  EXPECT_NE(f.expected.find("ragged_prefill"), std::string::npos) << f.expected;
  members["form"] = "flashinfer";
  file.metadata[id] = members.dump();
  EXPECT_NE(refused(file).expected.find("ragged_prefill"), std::string::npos);
}

TEST(FormFields, PackedKeysHaveNoPages) {
  for (const char* kind : {"ragged_prefill", "merge", "paged_prefill", "mla_decode"}) {
    auto [id, file] = case_of_kind(kind);
    Json members = Json::parse(file.metadata.at(id));
    ASSERT_TRUE(members.contains("page_size")) << kind;
    members.erase("page_size");
    file.metadata[id] = members.dump();
    const bool packed = kind == std::string("ragged_prefill") || kind == std::string("merge");
    EXPECT_EQ(parse(file).status.ok(), packed) << kind;
  }
}

TEST(FormFields, EveryShapeThatHeadScalesMayHaveIsNamed) {
  auto [id, file] = case_of_kind("paged_prefill");
  const RecordedCase c = std::move(parse(file).cases.at(0));
  const auto& call = std::get<PagedAttention>(c.attention().calls[0]);
  const std::vector<float> scales(3 * 1000, 1);
  file.tensors[id + "/k_scale"] = ConstTensorView(scales.data(), DType::kF32, {3, 1000});
  Json members = Json::parse(file.metadata.at(id));
  members.erase("k_scale");
  file.metadata[id] = members.dump();
  const Parsed p = parse(file);
  ASSERT_FALSE(p.status.ok());
  const std::string heads = std::to_string(call.params.num_kv_heads);
  EXPECT_EQ(p.status.findings()[0].expected,
            "[" + heads + "] or [" + std::to_string(call.pages.batch()) + ", " + heads + "]");
}

TEST(FormFields, AnIdMayHaveASlash) {
  auto [id, file] = case_of_kind("paged_prefill");
  SafetensorsFile two = file;
  const std::string longer = id + "/layer0";
  two.metadata[longer] = file.metadata.at(id);
  for (const auto& [name, view] : file.tensors)
    if (name.starts_with(id + '/')) two.tensors[longer + name.substr(id.size())] = view;
  const Parsed p = parse(two);
  EXPECT_TRUE(p.status.ok()) << p.status.to_string();
  ASSERT_EQ(p.cases.size(), 2U);
  EXPECT_EQ(p.cases[1].id, longer);
}

TEST(FormFields, RowsAreOfAGoodCaseThatHasThem) {
  const SafetensorsFile file = curated_file("reports/same_rows.safetensors");
  const std::string id = "same-rows-same-bits";
  const auto refused_with = [&](const char* field, const Json& value) {
    SafetensorsFile changed = file;
    set_field(changed, id, field, value);
    const Parsed p = parse(changed);
    EXPECT_EQ(p.status.findings().size(), 1U) << p.status.to_string();
    EXPECT_EQ(p.cases.size(), 2U);
    return p.status.ok() ? Finding() : p.status.findings()[0];
  };
  EXPECT_NE(
      refused_with("rows_of", "same-rows-alon").expected.find("did you mean same-rows-alone?"),
      std::string::npos);
  EXPECT_EQ(refused_with("rows_of", "nobody").where.field, "rows_of");
  EXPECT_EQ(refused_with("rows_of", id).expected, "another case of this file");
  EXPECT_EQ(refused_with("rows_count", 9).expected, "at most the 8 rows of same-rows-alone");
  EXPECT_EQ(refused_with("rows_from", 17).expected, "rows_from + rows_count at most 24");
  EXPECT_EQ(refused_with("rows_count", 0).where.field, "rows_count");
  EXPECT_TRUE(names(parse(only(file, id)).status, "rows_of"));
}

TEST(FormFields, RowsOfNoCaseAreRefused) {
  const SafetensorsFile file = curated_file("reports/same_rows.safetensors");
  for (const char* member : {"rows_from", "rows_count"}) {
    SafetensorsFile changed = only(file, "same-rows-alone");
    set_field(changed, "same-rows-alone", member, 1);
    EXPECT_EQ(refused(changed).where.field, "rows_of") << member;
    EXPECT_EQ(refused(changed).got, "missing") << member;
  }
}

TEST(FormFields, APromiseNeedsAKernelThatRan) {
  SafetensorsFile file = only(curated_file("reports/padded_tile.safetensors"), "padded-tile-right");
  const std::string id = "padded-tile-right";
  set_field(file, id, "gpu", false);
  for (const char* name : {"/out_gpu", "/lse_gpu"}) file.tensors.erase(id + name);
  EXPECT_TRUE(parse(file).status.ok()) << parse(file).status.to_string();
  for (const char* member : {"arithmetic", "empty_rows", "splits", "tf32"}) {
    SafetensorsFile changed = file;
    set_field(changed, id, member, 7);
    EXPECT_EQ(refused(changed).where.field, member);
    EXPECT_TRUE(refused(changed).expected.starts_with("no such member where gpu is false"));
  }
}

TEST(FormFields, AMissingMemberIsNamedWithItsTypeAndMeaning) {
  const auto [id, file] = case_of_kind("paged_prefill");
  SafetensorsFile changed = file;
  Json metadata = Json::parse(changed.metadata.at(id));
  metadata.erase("num_qo_heads");
  changed.metadata.at(id) = metadata.dump();
  const Status status = parse(changed).status;
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.findings()[0].expected, "integer: heads of q and out");
}

TEST(FormFields, APromiseOfEmptyRowsIsExactOrAMark) {
  const SafetensorsFile file = only(curated_file("reports/empty_rows.safetensors"), "empty-exact");
  for (const Json& good : {Json("exact"), Json("inf"), Json("nan"), Json(-49993.98), Json(0)}) {
    SafetensorsFile changed = file;
    set_field(changed, "empty-exact", "empty_rows", good);
    EXPECT_TRUE(parse(changed).status.ok()) << good;
  }
  for (const Json& bad : {Json("exakt"), Json(true), Json(nullptr), Json::array({1})}) {
    SafetensorsFile changed = file;
    set_field(changed, "empty-exact", "empty_rows", bad);
    EXPECT_EQ(refused(changed).where.field, "empty_rows") << bad;
  }
}

TEST(FormFields, AFormIsOneOfTheListAndHasTheKind) {
  auto [id, file] = case_of_kind("paged_prefill");
  set_field(file, id, "form", "flashinfer");
  EXPECT_TRUE(parse(file).status.ok()) << parse(file).status.to_string();
  set_field(file, id, "form", "flashinfre");
  EXPECT_NE(refused(file).expected.find("did you mean flashinfer?"), std::string::npos);
  set_field(file, id, "form", "flashmla");
  EXPECT_EQ(parse(file).skipped.size(), 1U);
}

TEST(FormFields, ADeclaredArithmeticIsSound) {
  const auto one = case_of_kind("decode");
  const auto is_refused = [&](const char* field, const Json& value) {
    SafetensorsFile changed = one.second;
    set_field(changed, one.first, field, value);
    return names(parse(changed).status, field);
  };
  EXPECT_FALSE(is_refused("weights_dtype", "f16"));
  EXPECT_FALSE(is_refused("weights_scale", 256));
  EXPECT_FALSE(is_refused("tf32", true));
  EXPECT_TRUE(is_refused("weights_dtype", "f8"));
  EXPECT_TRUE(is_refused("weights_scale", 0));
  EXPECT_TRUE(is_refused("weights_scale", 1e38));
  EXPECT_TRUE(is_refused("scores_dtype", "e4m3fn"));
  EXPECT_TRUE(is_refused("tf32", 1));
  EXPECT_TRUE(is_refused("splits", 0));
}

TEST(FormFields, ATensorOfNoCaseAndACaseWithoutTensorsAreNamed) {
  const auto [id, file] = case_of_kind("paged_prefill");
  SafetensorsFile stray = file;
  stray.tensors["sinks"] = file.tensors.at(id + "/lse");
  Parsed p = parse(stray);
  ASSERT_EQ(p.status.findings().size(), 1U) << p.status.to_string();
  EXPECT_EQ(p.status.findings()[0].case_id, "test#sinks");
  EXPECT_EQ(p.cases.size(), 1U);
  SafetensorsFile misspelt = file;
  misspelt.metadata["a-decode"] = file.metadata.at(id);
  misspelt.metadata["format"] = "pt";
  p = parse(misspelt);
  EXPECT_EQ(p.cases.size(), 1U);
  EXPECT_TRUE(names(p.status, "q"));
}

TEST(FormFields, WhatIsThereForPeopleIsPassed) {
  for (auto& [c, file] : one_of_each_kind()) {
    SafetensorsFile noted = file;
    set_field(noted, c.id, "note", Json::object({{"by", "hand"}}));
    EXPECT_TRUE(parse(noted).status.ok()) << parse(noted).status.to_string();
  }
}

TEST(FormFields, GatesThatWereStoredAreThereWholeOrNotAtAll) {
  for (const auto& [c, file] : one_of_each_kind()) {
    if (c.system != "gdn" || c.kind != "prefill") continue;
    SafetensorsFile without = file;
    for (const char* name : {"/a", "/b", "/A_log", "/dt_bias"}) without.tensors.erase(c.id + name);
    EXPECT_TRUE(parse(without).status.ok()) << parse(without).status.to_string();
  }
}

TEST(FormFields, EachRowOfTheTableIsReadInSomeForm) {
  // These no curated file has: other tests set them (terms: tools.recordings,
  // terms_vectors_test.cc), or cases of a larger set have them.
  std::set<std::string> read = {"form",
                                "arithmetic",
                                "weights_dtype",
                                "weights_scale",
                                "scores_dtype",
                                "tf32",
                                "splits",
                                "kv_cache_fp8",
                                "kv_dequantized",
                                "alibi",
                                "temperature_len",
                                "chunk_lookback",
                                "q_scale",
                                "out_scale",
                                "mask_heads",
                                "key_bias",
                                "qq_bias",
                                "relative_bias",
                                "request_causal",
                                "cache_leftpad",
                                "bidirectional_ranges",
                                "bidirectional_indptr",
                                "qo_indptr_padded",
                                "kv_indptr_padded"};
  for (const std::string& name : all_files()) {
    const SafetensorsFile file = curated_file(name);
    for (const auto& [id, text] : file.metadata) {
      const Json metadata = Json::parse(text);
      for (const auto& [member, value] : metadata.items()) read.insert(member);
    }
    for (const auto& [full, view] : file.tensors) read.insert(full.substr(full.find('/') + 1));
  }
  // A case that holds a name which nothing reads is refused, and all of these are read.
  for (const FormField& f : kFormFields) {
    const std::string name(f.name.ends_with('N')
                               ? std::string(f.name.substr(0, f.name.size() - 1)) + '0'
                               : std::string(f.name));
    EXPECT_TRUE(f.for_people() || read.contains(name)) << f.name;
  }
}

}  // namespace
}  // namespace shadowgraph::form_fields_test
