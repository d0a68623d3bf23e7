// Finds the instruction sets of this machine and chooses the units that were compiled for them.
#include <array>
#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/float_formats.h"
#include "core/laws.h"
#include "kernels/isa/units.h"
#include "kernels/recurrent/linear_unit.h"
#include "kernels/sparse/index_unit.h"
#include "kernels/sparse/sparse_unit.h"
#include "shadowgraph/attention/attention.h"

#ifdef SHADOWGRAPH_X86
#include <cpuid.h>
#endif
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace shadowgraph {
namespace {

#ifdef SHADOWGRAPH_X86
struct Cpu {
  bool avx2 = false, avx512 = false, avx512bf16 = false, amx = false;
};

/// Linux gives a process the state of tiles on request.
bool request_tiles() {
#ifdef __linux__
  // no edge: arguments of Linux
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(2)
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

/// CPUID says what the processor has, XCR0 what the operating system saves.
Cpu detect() {
  Cpu cpu;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return cpu;
  const auto bit = [](unsigned word, int i) { return (word >> i & 1) != 0; };
  const bool fma = bit(c, 12), os_saves = bit(c, 27), f16c = bit(c, 29);
  if (!os_saves || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return cpu;
  unsigned xcr0_low = 0, xcr0_high = 0;
  __asm__("xgetbv" : "=a"(xcr0_low), "=d"(xcr0_high) : "c"(0));
  const bool ymm = (xcr0_low & 0x06) == 0x06, zmm = (xcr0_low & 0xe6) == 0xe6;
  const bool tiles = (xcr0_low & 0x60000) == 0x60000 && bit(d, 22) && bit(d, 24);
  cpu.avx2 = ymm && fma && f16c && bit(b, 5);
  cpu.avx512 = cpu.avx2 && zmm && bit(b, 16) && bit(b, 17) && bit(b, 30) && bit(b, 31);
  if (cpu.avx512 && a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) cpu.avx512bf16 = bit(a, 5);
  cpu.amx = cpu.avx512bf16 && tiles && request_tiles();
  return cpu;
}
#endif

/// What this machine has, best last.
const std::vector<const Isa*>& available() {
  static const std::vector<const Isa*> list = [] {
    std::vector<const Isa*> isas = {&kGenericIsa};
#ifdef SHADOWGRAPH_X86
    const Cpu cpu = detect();
    if (cpu.avx2) isas.push_back(&kAvx2Isa);
    if (cpu.avx512) isas.push_back(&kAvx512Isa);
    if (cpu.avx512bf16) isas.push_back(&kAvx512Bf16Isa);
    if (cpu.amx) isas.push_back(&kAmxIsa);
#endif
    return isas;
  }();
  return list;
}

const Isa* find_available(std::string_view name) {
  for (const Isa* isa : available()) {
    if (isa->name == name) return isa;
  }
  return name == kSoftAmxIsa.name ? &kSoftAmxIsa : nullptr;
}

std::atomic<const Isa*>& chosen() {
  static std::atomic<const Isa*> isa = [] {
    const char* wanted = std::getenv("SHADOWGRAPH_ISA");
    return wanted == nullptr || *wanted == '\0' ? available().back() : find_available(wanted);
  }();
  return isa;
}

constexpr std::array<float, 256> fp8_values(FloatFormat format) {
  std::array<float, 256> values{};
  // no edge: every value of a byte
  for (uint32_t i = 0; i < 256; ++i) values[i] = decode_float(i, format);
  return values;
}

}  // namespace

const std::array<float, 256> kE4M3Values = fp8_values(kE4M3Format);
const std::array<float, 256> kE5M2Values = fp8_values(kE5M2Format);

const Isa* find_isa(std::string_view name) {
  return name.empty() ? chosen().load() : find_available(name);
}

namespace {

/// That one's unit of a kernel that has none of its own for bf16's dot product or tiles.
template <class Unit>
const Unit& unit_of(std::string_view name, const Unit& generic, [[maybe_unused]] const Unit& avx2,
                    [[maybe_unused]] const Unit& avx512) {
#ifdef SHADOWGRAPH_X86
  const Isa* const isa = find_isa(name);
  if (isa == &kAvx2Isa) return avx2;
  if (isa != nullptr && isa != &kGenericIsa && isa != &kSoftAmxIsa) return avx512;
#else
  (void)name;
#endif
  return generic;
}

}  // namespace

#ifdef SHADOWGRAPH_X86
#define SG_UNITS(kernel) kGeneric##kernel, kAvx2##kernel, kAvx512##kernel
#else
#define SG_UNITS(kernel) kGeneric##kernel, kGeneric##kernel, kGeneric##kernel
#endif

const LinearIsa& linear_isa(std::string_view name) { return unit_of(name, SG_UNITS(Linear)); }
const SparseIsa& sparse_isa(std::string_view name) { return unit_of(name, SG_UNITS(Sparse)); }
const IndexIsa& index_isa(std::string_view name) { return unit_of(name, SG_UNITS(Index)); }

#undef SG_UNITS

Finding unknown_isa(std::string_view name) {
  std::string names;
  for (const Isa* isa : available()) names += (names.empty() ? "" : " | ") + std::string(isa->name);
  return make_finding("input.isa", at("isa"), names, std::string(name));
}

std::span<const std::string_view> available_isas() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> list;
    for (const Isa* isa : available()) list.push_back(isa->name);
    return list;
  }();
  return names;
}

std::string_view current_isa() {
  const Isa* isa = chosen().load();
  return isa == nullptr ? "none" : isa->name;
}

Status set_isa(std::string_view name) {
  Status status;
  if (const Isa* isa = find_available(name)) {
    chosen().store(isa);
    return status;
  }
  status.add(unknown_isa(name));
  return status;
}

}  // namespace shadowgraph
