/* Plain C99: one query over one key, whose weight is 1, so out is its value, exactly, and lse is
 * q.k. Then a page id that is none: the finding names it, and out stays as it was. */
#include <stdio.h>
#include <string.h>

#include "shadowgraph.h"

static DLTensor f32(float* data, int ndim, int64_t* shape) {
  DLTensor t;
  memset(&t, 0, sizeof t);
  t.data = data, t.ndim = ndim, t.shape = shape;
  t.device.device_type = kDLCPU;
  t.dtype.code = kDLFloat, t.dtype.bits = 32, t.dtype.lanes = 1;
  return t;
}

static DLTensor i32(int32_t* data, int ndim, int64_t* shape) {
  DLTensor t = f32((float*)data, ndim, shape);
  t.dtype.code = kDLInt;
  return t;
}

int main(void) {
  float q[2] = {1, 2}, k[2] = {3, 4}, v[2] = {5, -6}, out[2] = {0, 0}, lse[1] = {0};
  int32_t page_table[1] = {0}, cache_seqlens[1] = {1};
  int64_t rows[3] = {1, 1, 2}, pool[4] = {1, 1, 1, 2}, pair[2] = {1, 1}, one[1] = {1};
  DLTensor q_t = f32(q, 3, rows), k_t = f32(k, 4, pool), v_t = f32(v, 4, pool);
  DLTensor out_t = f32(out, 3, rows), lse_t = f32(lse, 2, pair);
  DLTensor table_t = i32(page_table, 2, pair), lens_t = i32(cache_seqlens, 1, one);
  sg_cache cache = SG_CACHE_INIT;
  sg_pages pages = SG_PAGES_INIT;
  sg_params params = SG_PARAMS_INIT;
  sg_report* report = NULL;
  sg_finding finding = SG_FINDING_INIT;
  sg_status status;

  cache.k = &k_t, cache.v = &v_t;
  pages.page_table = &table_t, pages.cache_seqlens = &lens_t;
  params.sm_scale = 1;
  status = sg_paged_attention(&q_t, &cache, &pages, NULL, &params, &out_t, &lse_t, &report);
  printf("shadowgraph %s: status %d, out = [%g, %g], lse = %g\n", sg_version(), (int)status, out[0],
         out[1], lse[0]);
  if (status != SG_OK || report != NULL || out[0] != 5 || out[1] != -6 || lse[0] != 11) return 1;

  page_table[0] = 7;
  status = sg_paged_attention(&q_t, &cache, &pages, NULL, &params, &out_t, &lse_t, &report);
  if (status != SG_BAD_INPUT || sg_report_size(report) != 1) return 2;
  if (sg_report_get(report, 0, &finding) != SG_OK || out[0] != 5) return 3;
  printf("%s\n", finding.text);
  if (strcmp(finding.id, "table.page_id") != 0 || finding.row != 0 || finding.col != 0) return 4;
  sg_report_free(report);
  return 0;
}
