// Three-input bitwise logic in one instruction.
#pragma once

#include "sm70/common/portability.cuh"

namespace sm70 {

// lop3.b32 (PTX ISA, sm_50 and up). kTable is the truth table: evaluate the wanted expression on a = 0xF0, b = 0xCC,
// c = 0xAA. The compiler does not always fuse two logic operations by itself.
template <int kTable>
SM70_DEVICE uint32_t lop3(uint32_t a, uint32_t b, uint32_t c) {
#ifdef SM70_EMULATED
  return sm70_emulator::lop3<kTable>(a, b, c);
#else
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(result) : "r"(a), "r"(b), "r"(c), "n"(kTable));
  return result;
#endif
}

// Bits of `a` where `mask` is set, bits of `b` elsewhere: (a & mask) | (b & ~mask).
SM70_DEVICE uint32_t select_bits(uint32_t mask, uint32_t a, uint32_t b) {
  constexpr int kTable = (0xCC & 0xF0) | (0xAA & ~0xF0 & 0xFF);
  return lop3<kTable>(mask, a, b);
}

}  // namespace sm70
