// All that computes AttendUnits in f32, on a Vec that is there. The order matters.
// clang-format off
#include "kernels/dense/math.inl"
#include "kernels/dense/formats.inl"
#include "kernels/dense/products.inl"
#include "kernels/dense/strip.inl"
#include "kernels/dense/panels.inl"
#include "kernels/dense/attend.inl"
// clang-format on
