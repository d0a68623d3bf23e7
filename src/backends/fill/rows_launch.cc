// Launches the kernels that gather page tables on the device.
#include "backends/fill/rows.h"
#include "launch/gather_table.h"
#include "launch/store_launch.h"

namespace shadowgraph {

void launch_gather(Stream& stream, const Meta& meta, const RowTables& tables, const StepIo& step) {
  const auto at = [&](int buffer) -> const Buffer& { return meta[static_cast<size_t>(buffer)]; };
  const auto has = [&](int buffer) { return buffer >= 0 && meta.has(static_cast<size_t>(buffer)); };
  if (!has(tables.pool_rows)) return;
  for (const int table : {tables.table, tables.swa_table}) {
    if (!has(table)) continue;
    GatherTable c;
    c.req_to_token = step.req_to_token;
    if (table == tables.swa_table) c.full_to_swa = step.full_to_swa;
    c.req_pool_indices = elements<int32_t>(at(tables.pool_rows));
    c.lens = elements<int32_t>(at(tables.lens));
    if (has(tables.offsets)) c.offsets = elements<int32_t>(at(tables.offsets));
    c.page_table = at(table).view();
    c.unit = meta.units[static_cast<size_t>(table)];
    stream.launch(gather_table_launch(c));
  }
}

void launch_store(Stream& stream, const LayerIo& io, const Buffer& out_cache_loc,
                  const RequestRows& rows) {
  if (!io.k.defined()) return;
  StoreKv c;
  c.k = io.k, c.v = io.v, c.cache = io.cache;
  c.out_cache_loc = elements<int64_t>(out_cache_loc).first(static_cast<size_t>(io.k.shape[0]));
  stream.launch(store_launch(c, rows));
}

}  // namespace shadowgraph
