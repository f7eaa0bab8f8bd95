// A weight matrix cut into panels of 16 outputs, k outermost inside a panel, in the format the file had.
//
// One panel, K inputs:
//   f32, f16, bf16   [K][16] elements
//   q8_0             per block of 32 k: 16 scales (f16), then [32][16] int8
//   q4_0             per block of 32 k: 16 scales (f16), then [16][16] bytes; byte = k even (low), k odd (high)
//   q4_1             the same with 16 minima (f16) after the scales
//
// The same for integer products (Compute::integer), where a pair of k lies side by side:
//   q8_0             after the scales [16 pairs][16][2] int8
//   q4_0, q4_1       after the scales [4][16][2] words of 16 bits; word [g][c][j] holds k = 8g + 2i + j in its
//                    bits 4i..4i+3, for q4_0 less 8, in two's complement
// For products with 8-bit rows (Compute::int8; q8_0 is as for 16 bits):
//   q4_0, q4_1       after the scales [4][16][4] bytes; byte [g][c][j] holds k = 8g + j (low) and 8g + 4 + j (high)
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "arena.h"

namespace sapwood {

constexpr int kPanel = 16;
constexpr int kBlock = 32;

enum class Format { f32, f16, bf16, q8_0, q4_0, q4_1 };

// How products with block weights are computed; the other formats are always float32.
// `integer` rounds rows to 16 bits, `int8` for q4 weights to 8.
enum class Compute { f32, integer, int8 };

inline bool has_blocks(Format f) { return f == Format::q8_0 || f == Format::q4_0 || f == Format::q4_1; }

// Whether rows of so many values can be stored so.
inline bool whole_blocks(Format f, int inputs) { return !has_blocks(f) || inputs % kBlock == 0; }

struct Panel {
  const uint8_t* data;
  Format format;
  int first;  // output column of lane 0
  int width;  // live columns, 1..16; the rest of the panel is zero
  Compute compute;
};

struct IntKernels;

class PackedMatrix {
 public:
  // `kernels` do its integer products.
  PackedMatrix(int inputs, Compute compute, std::shared_ptr<Arena> arena, const IntKernels& kernels)
      : inputs_(inputs), compute_(compute), kernels_(kernels), arena_(std::move(arena)) {}
  PackedMatrix(const PackedMatrix&) = delete;
  PackedMatrix& operator=(const PackedMatrix&) = delete;

  // `rows` outputs of `format` in file layout (row-major, GGUF blocks), `row_bytes` apart. Throws on a bad size.
  void append(Format format, const uint8_t* data, int rows, size_t row_bytes);

  int inputs() const { return inputs_; }
  int outputs() const { return outputs_; }
  size_t bytes() const { return bytes_; }
  const IntKernels& kernels() const { return kernels_; }
  const std::vector<Panel>& panels() const { return panels_; }

  // Whether some panel is multiplied that way.
  bool uses(Compute compute) const { return uses_[static_cast<int>(compute)]; }

 private:
  int inputs_;
  Compute compute_;
  const IntKernels& kernels_;
  bool uses_[3] = {};
  int outputs_ = 0;
  size_t bytes_ = 0;
  std::vector<Panel> panels_;
  std::shared_ptr<Arena> arena_;
};

size_t row_bytes(Format format, int inputs);
size_t panel_bytes(Format format, int inputs);

// Writes a panel's weights as [K][16] floats: exactly the values the small-M kernels use on the fly.
// Not for panels of integer products.
void unpack_panel(const Panel& panel, int inputs, float* out);

}  // namespace sapwood
