#include "backends/cutlass_mla.h"

#include "backends/fields.h"

namespace shadowgraph {
namespace {

constexpr ForwardMode kModes[] = {ForwardMode::kDecode, ForwardMode::kIdle};
constexpr int32_t kPageSizes[] = {128};

constexpr Field kFields[] = {
    field::table("block_kv_indices", CutlassMla::kPageTable, CutlassMla::kKvLens,
                 "fa.I-28 fa.I-85"),
};

constexpr BufferRole kRoles[] = {
    {CutlassMla::kKvLens, Role::kKeyLens},
    {CutlassMla::kCuSeqlensQ, Role::kQueryOffsets},
    {CutlassMla::kOutCacheLoc, Role::kStored},
    {CutlassMla::kPoolRows, Role::kPoolRows},
    {CutlassMla::kSeqLensK, Role::kWidthLens},
    {CutlassMla::kMaxSeqLenQ, Role::kLongestQuery},
    {CutlassMla::kMaxSeqLenK, Role::kLongestKeys, CutlassMla::kKvLens},
    {CutlassMla::kSumSeqLensQ, Role::kAllQueries},
};

constexpr BackendInfo kInfo{.name = "cutlass_mla",
                            .about = "CUTLASS-MLA decode (SGLang)",
                            .modes = kModes,
                            .page_sizes = kPageSizes,
                            .tree = false,
                            .heads = false,
                            .latent = true,
                            .in_graph_tables = true,
                            .fields = kFields,
                            .roles = kRoles};

}  // namespace

const BackendInfo& CutlassMla::info() const { return kInfo; }

}  // namespace shadowgraph
