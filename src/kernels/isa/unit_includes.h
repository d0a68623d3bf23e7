// What every instruction-set unit includes before it opens its unnamed namespace.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "attn/exp2_poly.h"
#include "kernels/isa/units.h"
#include "kernels/unit.h"
