// Products of integer rows with block weights; what one instruction set makes of them.
//
// out[r][c] = 2^e[r] · chain, the chain over blocks of 32 k ascending, in float32 with one fused multiply-add each:
//   q8_0, q4_0   chain = fma(float(Σ w·q), d, chain)                  w: the int8, or the nibble less 8
//   q4_1         the same with w the nibble, then chain = fma(float(Σ q), m, chain)
// Σ over the block in int32, exact (127·32768·32 < 2^31); float() rounds to nearest even (q8_0 alone needs it).
#pragma once

#include "int_rows.h"
#include "packed.h"

namespace sapwood {

constexpr int kIntRows = 6;        // most rows of tiled()
constexpr int kIntDirectRows = 4;  // most rows of direct()

struct IntKernels {
  const char* name;

  // Weights are unpacked in registers.
  void (*direct)(const Panel& panel, int inputs, IntRows rows, float (*out)[kPanel]);

  // Unpacks a panel for tiled(): expanded_bytes(inputs).
  void (*expand)(const Panel& panel, int inputs, uint8_t* to);

  // The same over an expanded panel.
  void (*tiled)(const uint8_t* expanded, Format format, int inputs, IntRows rows, float (*out)[kPanel]);
};

constexpr size_t expanded_bytes(int inputs) { return static_cast<size_t>(inputs) * kPanel * 2 + inputs / kBlock * 128; }

// The best that this machine runs. All give the same bits.
const IntKernels& int_kernels();

extern const IntKernels kBaseKernels;
#ifdef SAPWOOD_X86
extern const IntKernels kAvxVnniKernels, kAvx512VnniKernels;
#endif

}  // namespace sapwood
