// Dense layers over packed weights. All arrays are float32, row-major.
#pragma once

#include "packed.h"
#include "workers.h"

namespace sapwood {

// What is added to a chain once it is complete, in this order: bias, then the residual already in `out`.
struct Epilogue {
  const float* bias = nullptr;  // [outputs]
  bool accumulate = false;      // out += result
};

// Rows of activations; with `norm` [width] they are RMS-normed on the way in, without a pass of their own in `x`.
struct Input {
  const float* x;
  int rows;
  ptrdiff_t ld;
  const float* norm = nullptr;
  float eps = 0.0f;
};

struct Output {
  float* data;
  ptrdiff_t ld;
};

// out[m][n] = sum over k of x[m][k] * w[n][k]: one chain of fused multiply-adds in ascending k, or, in panels for
// integer products, what int_kernels.h says.
void linear(Workers& workers, Input in, const PackedMatrix& w, Output out, Epilogue epilogue);

enum class Activation { silu, gelu_tanh };

// out[m][n] = activation(gate chain) * (up chain): both products of one input, fused so that neither is stored.
void gated_linear(Workers& workers, Input in, const PackedMatrix& gate, const PackedMatrix& up, Activation activation,
                  Output out);

// y[m] = x[m] / sqrt(mean(x[m]²) + eps) * weight; the sum of squares has 8 fixed lanes and one fixed tree.
void rms_norm(Workers& workers, Input in, int width, Output out, bool accumulate);

// The same for one row, for callers that are already inside a piece.
void rms_norm_row(const float* x, int width, const float* weight, float eps, float* y, bool accumulate = false);

}  // namespace sapwood
