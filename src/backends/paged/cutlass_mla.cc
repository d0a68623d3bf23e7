#include "backends/paged/cutlass_mla.h"

#include "backends/fill/buffer_rows.h"

namespace shadowgraph {
namespace {

constexpr ForwardMode kCutlassMlaModes[] = {ForwardMode::kDecode, ForwardMode::kIdle};
constexpr int32_t kCutlassMlaPageSizes[] = {128};  // edge: keys

constexpr auto kCutlassMlaBuffers =
    with_family(kPagedBuffers, {field::table(CutlassMla::kPageTable, CutlassMla::kKvLens,
                                             "block_kv_indices", "fa.I-28 fa.I-85")});

constexpr BackendInfo kCutlassMlaInfo{.name = "cutlass_mla",
                                      .about = "CUTLASS-MLA decode (SGLang)",
                                      .modes = kCutlassMlaModes,
                                      .page_sizes = kCutlassMlaPageSizes,
                                      .heads = false,
                                      .latent = true,
                                      .in_graph_tables = true,
                                      .graph_storage = kOneTable,
                                      .buffers = kCutlassMlaBuffers};

}  // namespace

const BackendInfo& CutlassMla::info() const { return kCutlassMlaInfo; }

}  // namespace shadowgraph
