#include "embed.h"

#include <cstring>

#include "file_block.h"
#include "formats.h"

namespace sapwood {

namespace {

float half_at(const uint8_t* p) {
  uint16_t halves[kLanes] = {};
  std::memcpy(halves, p, 2);
  return from_half(halves)[0];
}

void nibbles(const uint8_t* quants, float* out) {
  constexpr int half = kBlock / 2;
  for (int j = 0; j < half; ++j) {
    out[j] = static_cast<float>(nibble(quants, j));
    out[j + half] = static_cast<float>(nibble(quants, j + half));
  }
}

void embed_block(Format format, const uint8_t* block, float* out) {
  const f32x8 d = splat(half_at(block));
  const uint8_t* quants = block + 2 * heads_of(format);
  if (format == Format::q8_0) {
    for (int i = 0; i < kBlock; i += kLanes) store(out + i, from_i8(quants + i) * d);
    return;
  }
  const bool has_min = format == Format::q4_1;
  nibbles(quants, out);
  const f32x8 m = splat(has_min ? half_at(block + 2) : 0.0f);
  for (int i = 0; i < kBlock; i += kLanes) {
    const f32x8 q = load(out + i);
    store(out + i, has_min ? fma(q, d, m) : (q - 8.0f) * d);
  }
}

template <class Element>
void embed_plain(const uint8_t* row, int inputs, float* out) {
  constexpr int bytes = Element::kBytes;
  int i = 0;
  for (; i + kLanes <= inputs; i += kLanes) store(out + i, Element::load8(row + i * bytes));
  uint8_t rest[kLanes * bytes] = {};
  std::memcpy(rest, row + i * bytes, static_cast<size_t>((inputs - i) * bytes));
  const f32x8 last = Element::load8(rest);
  std::memcpy(out + i, &last, static_cast<size_t>(inputs - i) * sizeof(float));
}

}  // namespace

void embed(Format format, const uint8_t* row, int inputs, float scale, float* out) {
  switch (format) {
    case Format::f32: embed_plain<F32>(row, inputs, out); break;
    case Format::f16: embed_plain<F16>(row, inputs, out); break;
    case Format::bf16: embed_plain<Bf16>(row, inputs, out); break;
    default:
      for (int b = 0; b < inputs / kBlock; ++b)
        embed_block(format, row + static_cast<size_t>(b) * block_bytes(format), out + b * kBlock);
  }
  if (scale != 1)
    for (int i = 0; i < inputs; ++i) out[i] *= scale;
}

}  // namespace sapwood
