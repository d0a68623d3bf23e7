// A decode of two requests over pages of two tokens, as a caller of C has it.
#pragma once

#include "c_api/dl_tensors.h"

namespace shadowgraph::c_api {

struct Decode {
  Tensor<float> q{{2, 4, 8}}, k{{4, 2, 2, 8}}, v{{4, 2, 2, 8}}, out{{2, 4, 8}, 99}, lse{{2, 4}, 99};
  Tensor<int32_t> table{{2, 2}, {3, 1, 2, 0}}, lens{{2}, {3, 2}};
  DLTensor q_t, k_t, v_t, out_t, lse_t, table_t, lens_t;
  sg_cache cache = SG_CACHE_INIT;
  sg_pages pages = SG_PAGES_INIT;
  sg_params params = SG_PARAMS_INIT;

  Decode() {
    count_up(&q.values, 0.25f);
    count_up(&k.values, 0.125f);
    count_up(&v.values, 1);
    describe();
    params.sm_scale = 0.5f;
  }
  Decode(const Decode&) = delete;
  Decode& operator=(const Decode&) = delete;

  /// After a tensor changed.
  void describe() {
    q_t = q.dl(), k_t = k.dl(), v_t = v.dl(), out_t = out.dl(), lse_t = lse.dl();
    table_t = table.dl(), lens_t = lens.dl();
    cache.k = &k_t, cache.v = &v_t;
    pages.page_table = &table_t, pages.cache_seqlens = &lens_t;
  }
  sg_status run(sg_report** report = nullptr) {
    return sg_paged_attention(&q_t, &cache, &pages, nullptr, &params, &out_t, &lse_t, report);
  }
  Found refused() {
    sg_report* report = nullptr;
    EXPECT_EQ(run(&report), SG_BAD_INPUT);
    EXPECT_EQ(out.values, std::vector<float>(out.values.size(), 99));
    EXPECT_EQ(lse.values, std::vector<float>(lse.values.size(), 99));
    return taken(report);
  }
};

}  // namespace shadowgraph::c_api
