// What every instruction-set unit includes before it opens its unnamed namespace.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "attn/exp2_poly.h"
#include "attn/lse.h"
#include "kernels/isa/units.h"
#include "kernels/unit.h"

/// Inner loops are one piece of code whatever the compiler thinks of their size.
#define SG_INLINE inline __attribute__((always_inline))
#define SG_INLINE_LAMBDA __attribute__((always_inline))
