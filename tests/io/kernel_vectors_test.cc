#include "io/kernel_vectors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "core/float_formats.h"

namespace shadowgraph {
namespace {

using Json = nlohmann::json;

/// kernels/*.safetensors of the folder that SHADOWGRAPH_VECTORS names; by default the curated ones.
std::vector<std::string> vector_files() {
  const char* folder = std::getenv("SHADOWGRAPH_VECTORS");
  const auto kernels = std::filesystem::path(folder ? folder : SHADOWGRAPH_TEST_DATA) / "kernels";
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(kernels, error)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

SafetensorsFile curated(const char* name) {
  SafetensorsFile file;
  const Status status =
      read_safetensors(std::string(SHADOWGRAPH_TEST_DATA "/kernels/") + name, &file);
  EXPECT_EQ(status.to_string(), "ok");
  return file;
}

struct Parsed {
  Status status;
  std::vector<KernelVector> cases;
  std::vector<SkippedCase> skipped;
};
Parsed parse(const SafetensorsFile& file) {
  Parsed p;
  p.status = parse_kernel_vectors(file, "test", &p.cases, &p.skipped);
  return p;
}

/// The file with only one case.
SafetensorsFile only(const SafetensorsFile& file, const std::string& id) {
  SafetensorsFile one;
  one.bytes = file.bytes;
  one.metadata[id] = file.metadata.at(id);
  for (const auto& [name, view] : file.tensors) {
    if (name.starts_with(id + '/')) one.tensors.emplace(name, view);
  }
  return one;
}

/// The first case of every kind in the curated files, by itself.
std::vector<std::pair<std::string, SafetensorsFile>> one_case_per_kind() {
  std::vector<std::pair<std::string, SafetensorsFile>> cases;
  for (const char* name : {"attention.safetensors", "flashinfer.safetensors"}) {
    const SafetensorsFile file = curated(name);
    std::set<std::string> seen;
    for (const KernelVector& v : parse(file).cases) {
      if (seen.insert(v.kind).second) cases.emplace_back(v.id, only(file, v.id));
    }
  }
  return cases;
}

bool names(const Status& status, const std::string& field) {
  return std::any_of(status.findings().begin(), status.findings().end(),
                     [&](const Finding& f) { return f.where.field == field; });
}

/// The query rows, heads and head_dim_vo that a call answers.
std::vector<int64_t> out_shape(const AnyCall& call) {
  if (const auto* merge = std::get_if<MergeStates<LseBase::kLog2>>(&call)) {
    return {merge->v.shape[0], merge->v.shape[2], merge->v.shape[3]};
  }
  const auto shape = [](const auto& c) {
    return std::vector<int64_t>{c.q.shape[0], c.params.num_qo_heads, c.params.head_dim_vo};
  };
  const auto* paged = std::get_if<PagedAttention>(&call);
  return paged ? shape(*paged) : shape(std::get<RaggedAttention>(call));
}

void expect_shape(const ConstTensorView& t, const std::vector<int64_t>& shape,
                  const std::string& what) {
  EXPECT_EQ(std::vector<int64_t>(t.shape.begin(), t.shape.begin() + t.rank), shape) << what;
}

// --- real files

TEST(KernelVectors, EveryCaseIsReadOrSkippedWithItsKind) {
  const std::vector<std::string> files = vector_files();
  if (files.empty())
    GTEST_SKIP() << "no kernels/*.safetensors in the folder of SHADOWGRAPH_VECTORS";
  for (const std::string& path : files) {
    SafetensorsFile file;
    ASSERT_EQ(read_safetensors(path, &file).to_string(), "ok") << path;
    const Parsed p = parse(file);
    EXPECT_EQ(p.status.to_string(), "ok") << path;
    EXPECT_EQ(p.cases.size() + p.skipped.size(), file.metadata.size()) << path;
    for (const SkippedCase& s : p.skipped) EXPECT_FALSE(s.kind.empty()) << path << '#' << s.id;
  }
}

TEST(KernelVectors, EveryAnswerHasTheShapeOfItsCall) {
  for (const std::string& path : vector_files()) {
    std::vector<KernelVector> cases;
    std::vector<SkippedCase> skipped;
    ASSERT_TRUE(read_kernel_vectors(path, &cases, &skipped).ok());
    for (const KernelVector& v : cases) {
      const std::string name = path + '#' + v.id;
      ASSERT_FALSE(v.calls.empty()) << name;
      EXPECT_TRUE(v.out_ref.defined() || !v.recorded.empty())
          << name << " has nothing to be judged by";
      for (const Recorded& r : v.recorded) {
        ASSERT_LT(r.call, v.calls.size()) << name;
        const std::vector<int64_t> shape = out_shape(v.calls[r.call]);
        expect_shape(r.out, shape, name);
        expect_shape(r.lse, {shape[0], shape[1]}, name);
      }
      const std::vector<int64_t> shape = out_shape(v.calls[0]);
      if (v.out_ref.defined()) expect_shape(v.out_ref, shape, name);
      if (v.lse_ref.defined()) expect_shape(v.lse_ref, {shape[0], shape[1]}, name);
    }
  }
}

TEST(KernelVectors, CuratedFilesHoldEveryKind) {
  std::set<std::string> kinds;
  for (const char* name : {"attention.safetensors", "flashinfer.safetensors"}) {
    for (const KernelVector& v : parse(curated(name)).cases) kinds.insert(v.kind);
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"decode", "extend", "prefill", "cross", "short",
                                          "paged_prefill", "ragged_prefill", "custom_mask", "merge",
                                          "swa_merge", "mla_decode", "mla_extend", "fp8_decode",
                                          "fp8_prefill", "hnd_prefill", "window_decode_128"}));
}

TEST(KernelVectors, NaiveSlidingWindowMergeIsTheKnownWrongVariant) {
  int naive = 0;
  for (const KernelVector& v : parse(curated("flashinfer.safetensors")).cases) {
    for (const Recorded& r : v.recorded) {
      EXPECT_EQ(r.known_wrong.empty(), r.name != "naive_merged");
      naive += r.name == "naive_merged";
    }
  }
  EXPECT_GT(naive, 0);
}

/// Address of head 0 of a key in a paged cache.
const std::byte* key_at(const PagedAttention& call, size_t request, int64_t token) {
  const auto entry =
      static_cast<size_t>(call.pages.kv_indptr[request] + token / call.cache.page_size);
  const int64_t at =
      call.cache.k.offset(call.pages.kv_indices[entry], token % call.cache.page_size, 0, 0);
  return call.cache.k.data + at * static_cast<int64_t>(size_of(call.cache.k.dtype));
}

TEST(KernelVectors, RaggedPartOfASlidingWindowCaseHoldsTheLastKeysOfEachRequest) {
  for (const KernelVector& v : parse(curated("flashinfer.safetensors")).cases) {
    if (v.kind != "swa_merge") continue;
    const auto& paged = std::get<PagedAttention>(v.calls[0]);
    const auto& ragged = std::get<RaggedAttention>(v.calls[1]);
    const auto head_bytes =
        static_cast<size_t>(paged.cache.k.head_dim) * size_of(paged.cache.k.dtype);
    for (size_t r = 0; r < paged.pages.last_page_len.size(); ++r) {
      const int64_t pages = paged.pages.kv_indptr[r + 1] - paged.pages.kv_indptr[r];
      const int64_t kv_len = (pages - 1) * paged.cache.page_size + paged.pages.last_page_len[r];
      const int64_t begin = ragged.cu_seqlens_k[r], end = ragged.cu_seqlens_k[r + 1];
      for (int64_t key = begin; key < end; ++key) {
        EXPECT_EQ(
            std::memcmp(ragged.k.at(key, 0, 0), key_at(paged, r, kv_len - (end - key)), head_bytes),
            0)
            << v.id << " request " << r << " key " << key;
      }
    }
  }
}

TEST(KernelVectors, LatentCacheIsTheLatentThenTheRopePart) {
  for (const auto& [id, file] : one_case_per_kind()) {
    const Parsed p = parse(file);
    if (!p.cases[0].kind.starts_with("mla")) continue;
    const auto& call = std::get<PagedAttention>(p.cases[0].calls[0]);
    const ConstTensorView &ckv = file.tensors.at(id + "/ckv_cache"),
                          &kpe = file.tensors.at(id + "/kpe_cache");
    const int64_t last_page = ckv.shape[0] - 1, last_token = ckv.shape[1] - 1;
    const auto element = [&](int64_t dim) {
      return load_float(call.cache.k.data, call.cache.k.dtype,
                        call.cache.k.offset(last_page, last_token, 0, dim));
    };
    for (int64_t d = 0; d < ckv.shape[2]; ++d) {
      EXPECT_EQ(element(d), load_float(ckv.data, ckv.dtype, ckv.offset(last_page, last_token, d)));
    }
    for (int64_t d = 0; d < kpe.shape[2]; ++d) {
      EXPECT_EQ(element(ckv.shape[2] + d),
                load_float(kpe.data, kpe.dtype, kpe.offset(last_page, last_token, d)));
    }
  }
}

TEST(KernelVectors, OddAddressesAreCopiedToAlignedOnes) {
  for (auto [id, file] : one_case_per_kind()) {
    std::vector<std::vector<std::byte>> shifted;
    for (auto& [name, view] : file.tensors) {
      const auto size = static_cast<size_t>(view.numel()) * size_of(view.dtype);
      shifted.emplace_back(size + 1);
      std::memcpy(shifted.back().data() + 1, view.data, size);
      view.data = shifted.back().data() + 1;
    }
    const Parsed p = parse(file);
    ASSERT_EQ(p.status.to_string(), "ok");
    for (const Recorded& r : p.cases[0].recorded) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(r.out.data) % size_of(r.out.dtype), 0u);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(r.lse.data) % size_of(r.lse.dtype), 0u);
    }
  }
}

// --- bad cases

TEST(KernelVectors, BadMetadataFieldIsNamed) {
  const char* fields[] = {
      "num_qo_heads", "num_kv_heads", "head_dim",    "head_dim_ckv", "head_dim_kpe",
      "page_size",    "batch",        "num_states",  "lse_base",     "sm_scale",
      "q_lens",       "kv_lens",      "extend_lens", "prefix_lens",  "softcap",
      "window_left",  "window_right", "causal",      "sinks",        "gpu",
      "k_scale",      "v_scale",      "kv_layout",   "dtype",        "kv_dtype"};
  const Json bad_values[] = {
      nullptr, -7, -0.5, 1e300, 9223372036854775808u, "NaN", Json::array({-1}), Json::object()};
  for (const auto& [id, file] : one_case_per_kind()) {
    const Json metadata = Json::parse(file.metadata.at(id));
    for (const char* field : fields) {
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
    for (const char* field : {"num_qo_heads", "page_size", "sm_scale"}) metadata.erase(field);
    changed.metadata[id] = metadata.dump();
    const Status status = parse(changed).status;
    for (const char* field : {"num_qo_heads", "page_size", "sm_scale"}) {
      EXPECT_TRUE(names(status, field)) << status.to_string();
    }
  }
}

/// Tensors that a case may lack.
bool is_optional(const std::string& name, const KernelVector& v) {
  const bool fa2 = std::any_of(v.recorded.begin(), v.recorded.end(),
                               [](const Recorded& r) { return r.kernel == "fa2"; });
  const bool reference = name == "out_ref" || name == "lse_ref";
  return (reference && !fa2) || (name == "qo_indptr" && v.kind.find("decode") != std::string::npos);
}

TEST(KernelVectors, MissingOrMistypedTensorIsNamed) {
  for (const auto& [id, file] : one_case_per_kind()) {
    const KernelVector whole = parse(file).cases.at(0);
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
      if (name != "page_table") {
        EXPECT_TRUE(names(parse(reshaped).status, name)) << id << ' ' << whole.kind << ' ' << name;
      }
    }
  }
}

TEST(KernelVectors, LengthsInTensorsAreThoseOfTheMetadata) {
  for (const auto& [id, file] : one_case_per_kind()) {
    for (const auto& [full_name, view] : file.tensors) {
      const std::string name = full_name.substr(id.size() + 1);
      const bool page_ids = name.ends_with("kv_indices") || name == "page_table";
      if (view.dtype != DType::kI32 || page_ids) continue;
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

TEST(KernelVectors, FileWithoutCasesIsOfAnotherKind) {
  SafetensorsFile file;
  const float weight = 0;
  file.tensors["weight"] = ConstTensorView(&weight, DType::kF32, {1});
  const Parsed p = parse(file);
  ASSERT_EQ(p.status.findings().size(), 1u);
  EXPECT_EQ(p.status.findings()[0].id, "io.kind");
}

TEST(KernelVectors, OneBadCaseLeavesTheListAsItWas) {
  SafetensorsFile file = curated("attention.safetensors");
  file.metadata["case000"] = "{}}";
  std::vector<KernelVector> cases(1);
  std::vector<SkippedCase> skipped;
  const Status status = parse_kernel_vectors(file, "test", &cases, &skipped);
  ASSERT_EQ(status.findings().size(), 1u);
  EXPECT_EQ(status.findings()[0].case_id, "test#case000");
  EXPECT_EQ(cases.size(), 1u);
}

}  // namespace
}  // namespace shadowgraph
