// Products of integer rows with block weights; what one instruction set makes of them.
//
// out[r][c] = 2^e[r] · chain, the chain over blocks of 32 k ascending, in float32 with one fused multiply-add each:
//   q8_0, q4_0   chain = fma(float(Σ w·q), d, chain)                  w: the int8, or the nibble less 8
//   q4_1         the same with w the nibble, then chain = fma(float(Σ q), m, chain)
// With 8-bit rows, s their scale of the block:
//   q4_0         chain = fma(float(Σ w·q) · s, d, chain)
//   q4_1         the same with w the nibble, then chain = fma(float(Σ q) · s, m, chain)
// Σ over the block in int32, exact (127·32768·32 < 2^31); float() rounds to nearest even (q8_0 alone needs it).
#pragma once

#include <vector>

#include "int_rows.h"
#include "packed.h"

namespace sapwood {

constexpr int kIntRows = 6;        // most rows of tiled()
constexpr int kIntDirectRows = 4;  // most rows of direct() and expand()

struct IntKernels {
  const char* name;

  // Weights are unpacked in registers.
  void (*direct)(const Panel& panel, int inputs, const IntRows& rows, float (*out)[kPanel]);

  // 8-bit rows, up to kIntRows, and q4 weights; always unpacked in registers.
  void (*direct8)(const Panel& panel, int inputs, const Int8Rows& rows, float (*out)[kPanel]);

  // As direct(), and writes the panel unpacked, expanded_bytes(inputs), for tiled().
  void (*expand)(const Panel& panel, int inputs, const IntRows& rows, float (*out)[kPanel], uint8_t* to);

  // The same over an expanded panel.
  void (*tiled)(const uint8_t* expanded, Format format, int inputs, const IntRows& rows, float (*out)[kPanel]);
};

constexpr size_t expanded_bytes(int inputs) { return static_cast<size_t>(inputs) * kPanel * 2 + inputs / kBlock * 128; }

// Those that this machine runs, the best first. All give the same bits.
const std::vector<const IntKernels*>& int_kernels();

extern const IntKernels kBaseKernels, kAvxVnniKernels, kAvx512VnniKernels;

}  // namespace sapwood
