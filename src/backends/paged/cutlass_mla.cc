#include "backends/paged/cutlass_mla.h"

#include "backends/fill/fields.h"

namespace shadowgraph {
namespace {

constexpr ForwardMode kCutlassMlaModes[] = {ForwardMode::kDecode, ForwardMode::kIdle};
constexpr int32_t kCutlassMlaPageSizes[] = {128};

constexpr Field kCutlassMlaFields[] = {
    field::table("block_kv_indices", CutlassMla::kPageTable, CutlassMla::kKvLens,
                 "fa.I-28 fa.I-85"),
};

constexpr BufferRole kCutlassMlaRoles[] = {
    {CutlassMla::kKvLens, Role::kKeyLens},
    {CutlassMla::kCuSeqlensQ, Role::kQueryOffsets},
    {CutlassMla::kOutCacheLoc, Role::kStored},
    {CutlassMla::kPoolRows, Role::kPoolRows},
    {CutlassMla::kSeqLensK, Role::kWidthLens},
    {CutlassMla::kMaxSeqLenQ, Role::kLongestQuery},
    {CutlassMla::kMaxSeqLenK, Role::kLongestKeys, CutlassMla::kKvLens},
    {CutlassMla::kSumSeqLensQ, Role::kAllQueries},
};

constexpr BackendInfo kCutlassMlaInfo{.name = "cutlass_mla",
                                      .about = "CUTLASS-MLA decode (SGLang)",
                                      .modes = kCutlassMlaModes,
                                      .page_sizes = kCutlassMlaPageSizes,
                                      .tree = false,
                                      .heads = false,
                                      .latent = true,
                                      .in_graph_tables = true,
                                      .fields = kCutlassMlaFields,
                                      .roles = kCutlassMlaRoles};

}  // namespace

const BackendInfo& CutlassMla::info() const { return kCutlassMlaInfo; }

}  // namespace shadowgraph
