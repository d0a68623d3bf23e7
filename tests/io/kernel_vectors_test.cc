#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "core/float_formats.h"
#include "io/curated_vectors.h"
#include "io/recorded/recorded_cases.h"

namespace shadowgraph::kernel_vectors_test {
namespace {

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

/// The query rows, heads and head_dim_vo that a call answers.
std::vector<int64_t> out_shape(const AnyCall& call) {
  if (const auto* merge = std::get_if<MergeStates<LseBase::kLog2>>(&call)) {
    return {merge->v.shape[0], merge->v.shape[2], merge->v.shape[3]};
  }
  if (const auto* sparse = std::get_if<SparseAttention>(&call))
    return {sparse->q.shape[0], sparse->q.shape[1], sparse->head_dim_v};
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
    std::vector<RecordedCase> cases;
    std::vector<SkippedCase> skipped;
    ASSERT_TRUE(read_recorded_cases(path, &cases, &skipped).ok());
    for (const RecordedCase& v : cases) {
      const std::string name = path + '#' + v.id;
      ASSERT_FALSE(v.attention().calls.empty()) << name;
      EXPECT_TRUE(v.reference.out.defined() || !v.recorded.empty())
          << name << " has nothing to be judged by";
      for (const Recorded& r : v.recorded) {
        ASSERT_LT(r.call, v.attention().calls.size()) << name;
        const std::vector<int64_t> shape = out_shape(v.attention().calls[r.call]);
        expect_shape(r.out, shape, name);
        expect_shape(r.lse, {shape[0], shape[1]}, name);
      }
      const std::vector<int64_t> shape = out_shape(v.attention().calls[0]);
      if (v.reference.out.defined()) expect_shape(v.reference.out, shape, name);
      if (v.reference.lse.defined()) expect_shape(v.reference.lse, {shape[0], shape[1]}, name);
    }
  }
}

TEST(KernelVectors, CuratedFilesHoldEveryKind) {
  std::set<std::string> kinds;
  for (const char* name : kCuratedFiles) {
    for (const RecordedCase& v : parse(curated(name)).cases) kinds.insert(v.kind);
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"append",
                                          "attention_chunk",
                                          "cross",
                                          "custom_mask",
                                          "decode",
                                          "decode_causal",
                                          "decode_full",
                                          "decode_long_split",
                                          "dense_empty",
                                          "dense_f16",
                                          "empty_rows",
                                          "extend",
                                          "extend_causal",
                                          "extend_window_causal",
                                          "extend_window_local",
                                          "fp8_decode",
                                          "fp8_prefill",
                                          "hnd_prefill",
                                          "merge",
                                          "mla_decode",
                                          "mla_extend",
                                          "paged_prefill",
                                          "prefill",
                                          "ragged_prefill",
                                          "short",
                                          "softcap",
                                          "sparse_prefill",
                                          "swa_merge",
                                          "window_decode_128"}));
}

TEST(KernelVectors, NaiveSlidingWindowMergeIsTheKnownWrongVariant) {
  int naive = 0;
  for (const RecordedCase& v : parse(curated("flashinfer.safetensors")).cases) {
    for (const Recorded& r : v.recorded) {
      EXPECT_EQ(r.known_wrong.empty(), r.name != "naive_merged");
      naive += r.name == "naive_merged";
    }
  }
  EXPECT_GT(naive, 0);
}

TEST(KernelVectors, NaiveMergeCountsItsWindowFromThePrefixsEnd) {
  int shown = 0;
  for (const RecordedCase& v : parse(curated("flashinfer.safetensors")).cases) {
    if (v.kind != "swa_merge") continue;
    const auto& ragged = std::get<RaggedAttention>(v.attention().calls[1]);
    const auto& prefix = std::get<PagedAttention>(v.attention().calls[2]);
    const auto& naive = std::get<PagedAttention>(v.attention().calls[4]);
    const CustomMask& mask = naive.params.custom_mask;
    const int32_t window = prefix.params.window_left;
    EXPECT_EQ(naive.params.window_left, -1);
    for (size_t r = 0; r + 1 < ragged.cu_seqlens_q.size(); ++r) {
      const int64_t q_len = ragged.cu_seqlens_q[r + 1] - ragged.cu_seqlens_q[r];
      const int64_t pages = naive.pages.kv_indptr[r + 1] - naive.pages.kv_indptr[r];
      const int64_t kv_len = (pages - 1) * naive.cache.page_size + naive.pages.last_page_len[r];
      for (int64_t pair = 0; pair < q_len * kv_len; ++pair) {
        const int64_t q = pair / kv_len, k = pair % kv_len, own = k - (kv_len - q_len);
        const bool sees = own < 0 ? q - q_len - own <= window : own <= q && q - own <= window;
        const uint8_t byte = mask.data[static_cast<size_t>(mask.mask_indptr[r] + pair / 8)];
        ASSERT_EQ(byte >> (pair % 8) & 1, sees) << v.id << ' ' << q << ' ' << k;
        shown += own < 0 && sees && q - own > window;
      }
    }
  }
  EXPECT_GT(shown, 0);  // keys that have left the window
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
  for (const RecordedCase& v : parse(curated("flashinfer.safetensors")).cases) {
    if (v.kind != "swa_merge") continue;
    const auto& paged = std::get<PagedAttention>(v.attention().calls[0]);
    const auto& ragged = std::get<RaggedAttention>(v.attention().calls[1]);
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
    const auto& call = std::get<PagedAttention>(p.cases[0].attention().calls[0]);
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

TEST(KernelVectors, ReferenceOfAMergeHasTheRowsOfItsStates) {
  auto [id, file] = case_of_kind("merge");
  const int64_t rows = file.tensors.at(id + "/out").shape[0],
                heads = file.tensors.at(id + "/out").shape[1],
                dim = file.tensors.at(id + "/out").shape[2];
  const std::vector<float> out(static_cast<size_t>((rows + 1) * heads * dim));
  const std::vector<double> lse(static_cast<size_t>((rows + 1) * heads));
  for (const int64_t n : {rows, rows - 1, rows + 1, int64_t{0}}) {
    file.tensors[id + "/out_ref"] = {out.data(), DType::kF32, {n, heads, dim}};
    file.tensors[id + "/lse_ref"] = {lse.data(), DType::kF64, {n, heads}};
    const Parsed p = parse(file);
    EXPECT_EQ(p.status.ok(), n == rows) << p.status.to_string();
    EXPECT_EQ(names(p.status, "out_ref"), n != rows);
    EXPECT_EQ(names(p.status, "lse_ref"), n != rows);
    if (n != rows) continue;
    expect_shape(p.cases.at(0).reference.out, {rows, heads, dim}, id);
    expect_shape(p.cases.at(0).reference.lse, {rows, heads}, id);
  }
}

TEST(KernelVectors, WindowDecodeIsAFamilyOfNames) {
  auto [id, file] = case_of_kind("window_decode_128");
  for (const char* kind : {"window_decode_4096", "window_decode_any"}) {
    set_field(file, id, "kind", kind);
    const Parsed p = parse(file);
    EXPECT_EQ(p.status.to_string(), "ok");
    ASSERT_EQ(p.cases.size(), 1u);
    EXPECT_EQ(p.cases[0].kind, kind);
    EXPECT_EQ(p.cases[0].recorded.at(0).kernel, "flashinfer_decode");
  }
  for (const char* kind : {"window_decode", "a_window_decode_128", "decode_128"}) {
    set_field(file, id, "kind", kind);
    EXPECT_EQ(parse(file).skipped, (std::vector<SkippedCase>{{id, kind, "kind not known yet"}}));
  }
}

TEST(KernelVectors, AttentionCaseIsKnownByItsTensorsNotByTheNameOfItsMode) {
  for (const char* mode : {"decode", "extend", "prefill", "cross", "short"}) {
    auto [id, file] = case_of_kind(mode);
    set_field(file, id, "mode", "sideways");
    const Parsed p = parse(file);
    EXPECT_EQ(p.status.to_string(), "ok");
    ASSERT_EQ(p.cases.size(), 1u);
    EXPECT_EQ(p.cases[0].kind, "sideways");
    EXPECT_EQ(p.cases[0].recorded.empty(),
              parse(case_of_kind(mode).second).cases[0].recorded.empty());
    EXPECT_FALSE(std::get<PagedAttention>(p.cases[0].attention().calls[0]).cu_seqlens_q.empty());
  }
}

TEST(KernelVectors, DecodeBatchIsOneQueryOfEveryRequest) {
  auto [id, file] = case_of_kind("decode");
  const auto batch = Json::parse(file.metadata.at(id)).at("batch").get<size_t>();
  ASSERT_GE(batch, 2u);
  EXPECT_TRUE(
      std::get<PagedAttention>(parse(file).cases.at(0).attention().calls[0]).cu_seqlens_q.empty());

  std::vector<int32_t> q_lens(batch, 1), cu_seqlens_q(batch + 1);  // the same rows, otherwise dealt
  q_lens[0] = 2;
  q_lens[1] = 0;
  std::iota(cu_seqlens_q.begin(), cu_seqlens_q.end(), 0);
  cu_seqlens_q[1] = 2;
  set_field(file, id, "q_lens", q_lens);
  file.tensors[id + "/cu_seqlens_q"].data = reinterpret_cast<const std::byte*>(cu_seqlens_q.data());
  const Parsed p = parse(file);
  ASSERT_EQ(p.status.to_string(), "ok");
  const auto& call = std::get<PagedAttention>(p.cases.at(0).attention().calls[0]);
  EXPECT_TRUE(std::equal(call.cu_seqlens_q.begin(), call.cu_seqlens_q.end(), cu_seqlens_q.begin(),
                         cu_seqlens_q.end()));
}

TEST(KernelVectors, PrefixMaskOfASlidingWindowCaseIsTheWholeRequestsWindow) {
  int hidden = 0;
  for (const RecordedCase& v : parse(curated("flashinfer.safetensors")).cases) {
    if (v.kind != "swa_merge") continue;
    const auto& whole = std::get<PagedAttention>(v.attention().calls[0]);
    const auto& masked = std::get<PagedAttention>(v.attention().calls[3]);
    const CustomMask& mask = masked.params.custom_mask;
    EXPECT_EQ(masked.params.window_left, -1);
    for (size_t r = 0; r + 1 < whole.cu_seqlens_q.size(); ++r) {
      const int64_t q_len = whole.cu_seqlens_q[r + 1] - whole.cu_seqlens_q[r];
      const int64_t pages = whole.pages.kv_indptr[r + 1] - whole.pages.kv_indptr[r];
      const int64_t kv_len = (pages - 1) * whole.cache.page_size + whole.pages.last_page_len[r];
      const int64_t prefix = kv_len - q_len, window = whole.params.window_left;
      for (int64_t pair = 0; pair < q_len * prefix; ++pair) {
        const int64_t distance = prefix + pair / prefix - pair % prefix;
        const uint8_t byte = mask.data[static_cast<size_t>(mask.mask_indptr[r] + pair / 8)];
        ASSERT_EQ(byte >> (pair % 8) & 1, window < 0 || distance <= window) << v.id << ' ' << pair;
        hidden += distance > window;
      }
    }
  }
  EXPECT_GT(hidden, 0);
}

}  // namespace
}  // namespace shadowgraph::kernel_vectors_test
