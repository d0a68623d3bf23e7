// The header is C++11, too.
#include "shadowgraph.h"

int main() {
  sg_params params = SG_PARAMS_INIT;
  return params.window_left == -1 && sg_abi_version() >> 16 == SG_ABI_MAJOR ? 0 : 1;
}
