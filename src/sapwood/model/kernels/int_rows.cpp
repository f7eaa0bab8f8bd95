#include "int_rows.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "packed.h"
#include "simd.h"

namespace sapwood {

namespace {

typedef int16_t i16x8 __attribute__((vector_size(16)));
typedef int8_t i8x8 __attribute__((vector_size(8)));

constexpr int kBias = 127, kMantissa = 23, kTop = 14;  // 2^14 <= the largest magnitude < 2^15

float power_of_two(int e) {
  const int32_t bits = (e + kBias) << kMantissa;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

// The largest magnitude as the bits of a float: they order as the floats do, and a NaN is above all.
int32_t largest_bits(const float* x, int width) {
  i32x8 top = {};
  for (int i = 0; i < width; i += kLanes) {
    const i32x8 bits = (i32x8)load(x + i) & 0x7fffffff;
    top = bits > top ? bits : top;
  }
  int32_t most = 0;
  for (int i = 0; i < kLanes; ++i) most = std::max(most, top[i]);
  return most;
}

int32_t sum_lanes(i32x8 v) {
  int32_t sum = 0;
  for (int l = 0; l < kLanes; ++l) sum += v[l];
  return sum;
}

}  // namespace

float quantise_row(const float* x, int width, int16_t* q, float* sums) {
  const int exponent = largest_bits(x, width) >> kMantissa;
  if (exponent == 255) {
    std::fill(q, q + width, int16_t{0});
    std::fill(sums, sums + width / kBlock, 0.0f);
    return std::numeric_limits<float>::quiet_NaN();
  }
  const int e = std::clamp(exponent - kBias - kTop, -126, 126);
  const f32x8 up = splat(power_of_two(-e));
  for (int b = 0; b < width / kBlock; ++b) {
    i32x8 sum = {};
    for (int i = b * kBlock; i < (b + 1) * kBlock; i += kLanes) {
      const i32x8 n = to_int(round_even(load(x + i) * up));
      const i32x8 held = n > 32767 ? i32x8{} + 32767 : n;  // -32768 is the least there can be
      sum += held;
      const i16x8 narrow = __builtin_convertvector(held, i16x8);
      std::memcpy(q + i, &narrow, sizeof narrow);
    }
    sums[b] = static_cast<float>(sum_lanes(sum));
  }
  return power_of_two(e);
}

float quantise_row_to_8(const float* x, int width, int8_t* q, float* block_scale, float* sums) {
  const bool finite = largest_bits(x, width) >> kMantissa != 255;
  for (int b = 0; b < width / kBlock; ++b, x += kBlock, q += kBlock) {
    const int32_t bits = largest_bits(x, kBlock);
    float most;
    std::memcpy(&most, &bits, 4);
    const bool zero = !finite || most < power_of_two(-100);
    block_scale[b] = zero ? 0.0f : most / 127.0f;
    const f32x8 up = splat(zero ? 0.0f : 127.0f / most);
    i32x8 sum = {};
    for (int i = 0; i < kBlock; i += kLanes) {
      const i32x8 n = zero ? i32x8{} : to_int(round_even(load(x + i) * up));
      const i8x8 narrow = __builtin_convertvector(n, i8x8);
      std::memcpy(q + i, &narrow, sizeof narrow);
      sum += n;
    }
    sums[b] = static_cast<float>(sum_lanes(sum));
  }
  return finite ? 1.0f : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace sapwood
