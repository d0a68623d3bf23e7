// The header is C++11, too, and each INIT fills its struct.
#include "shadowgraph.h"

int main() {
  const sg_finding finding = SG_FINDING_INIT;
  const sg_terms terms = SG_TERMS_INIT;
  const sg_params params = SG_PARAMS_INIT;
  const sg_cache cache = SG_CACHE_INIT;
  const sg_pages pages = SG_PAGES_INIT;
  const sg_batch_params batch = SG_BATCH_INIT;
  const sg_role_value value = SG_ROLE_VALUE_INIT;
  const sg_judge_options options = SG_JUDGE_INIT;
  const bool sized = finding.struct_size == sizeof finding && terms.struct_size == sizeof terms &&
                     params.struct_size == sizeof params && cache.struct_size == sizeof cache &&
                     pages.struct_size == sizeof pages && batch.struct_size == sizeof batch &&
                     value.struct_size == sizeof value && options.struct_size == sizeof options;
  const bool usual = finding.row == -1 && finding.col == -1 && terms.q_scale == 1 &&
                     terms.out_scale == 1 && terms.mask_heads == 1 && params.window_left == -1 &&
                     params.window_right == -1 && params.terms == nullptr && cache.k_scale == 1 &&
                     cache.v_scale == 1 && batch.page_size == 1 && options.window_left == -1 &&
                     options.pad_kv_most == 1;
  return sized && usual && sg_abi_version() >> 16 == SG_ABI_MAJOR ? 0 : 1;
}
