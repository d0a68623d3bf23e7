// The switch of a program that has all mutants: included before every source of the copy, never by
// the product.
#pragma once

extern "C" {
extern int
    sg_mutant;       // the mutant that is on; 0: none; -1: none, and places that are run are noted
extern char sg_ran;  // its place was run
extern char sg_acted;  // and something else came of it there
void sg_note(int mutant);
}

// Internal linkage: a copy that was compiled for one instruction set must not be everybody's.
namespace {

[[gnu::always_inline, maybe_unused]] inline constexpr bool sg_is(int mutant) {
  if (__builtin_is_constant_evaluated()) return false;
  if (__builtin_expect(sg_mutant != mutant, 1)) {
    if (__builtin_expect(sg_mutant < 0, 0)) sg_note(mutant);
    return false;
  }
  __atomic_store_n(&sg_ran, 1, __ATOMIC_RELAXED);
  return true;
}

/// The same, where no values are compared.
[[gnu::always_inline, maybe_unused]] inline constexpr bool sg_acts(int mutant) {
  if (!sg_is(mutant)) return false;
  __atomic_store_n(&sg_acted, 1, __ATOMIC_RELAXED);
  return true;
}

template <class A, class B>
[[gnu::always_inline, maybe_unused]] inline constexpr A sg_seen(A mutated, B original) {
  if (mutated != original) __atomic_store_n(&sg_acted, 1, __ATOMIC_RELAXED);
  return mutated;
}

}  // namespace
