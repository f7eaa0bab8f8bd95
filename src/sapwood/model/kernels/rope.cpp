#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "attention.h"
#include "kv_tile.h"
#include "linear.h"
#include "simd.h"

namespace sapwood {

namespace {

void rotate(float* head, const float* cos, const float* sin, int half) {
  for (int i = 0; i < half; ++i) {
    const float a = head[i], b = head[i + half];
    head[i] = a * cos[i] - b * sin[i];
    head[i + half] = b * cos[i] + a * sin[i];
  }
}

// One row as int8 and its scale, the largest magnitude over 127. A row of zeros has scale zero; one that is not finite
// has a scale that is not, so that who reads it sees it.
void write_bytes(uint8_t* dst, const float* src, int dim) {
  float most = 0.0f;
  bool number = true;
  for (int d = 0; d < dim; ++d) {
    const float size = std::fabs(src[d]);
    number = number && size == size;
    most = size > most ? size : most;
  }
  const float scale = number ? most / 127.0f : std::numeric_limits<float>::quiet_NaN();
  const bool usable = scale > 0.0f && scale <= std::numeric_limits<float>::max();
  for (int d = 0; d < dim; ++d) {
    const float q = usable ? std::nearbyint(src[d] / scale) : 0.0f;
    dst[d] = static_cast<uint8_t>(static_cast<int8_t>(std::clamp(q, -127.0f, 127.0f)));
  }
  std::memcpy(dst + dim, &scale, sizeof scale);
}

void write(void* base, size_t at, const float* src, int count, KvType type) {
  if (type == KvType::f32) {
    std::copy(src, src + count, static_cast<float*>(base) + at);
    return;
  }
  uint16_t* dst = static_cast<uint16_t*>(base) + at;
  if (type == KvType::bf16) {
    for (int i = 0; i < count; ++i) dst[i] = to_bf16(src[i]);
    return;
  }
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) to_half(dst + i, load(src + i));
  if (i < count) {
    float rest[kLanes] = {};
    uint16_t half[kLanes];
    std::copy(src + i, src + count, rest);
    to_half(half, load(rest));
    std::copy(half, half + (count - i), dst + i);
  }
}

// One token's rows of all kv heads.
void write_heads(void* base, size_t slot, const float* src, HeadShape s, KvType type) {
  const int width = s.kv_heads * s.head_dim;
  if (type != KvType::q8) return write(base, slot * width, src, width, type);
  const int bytes = row_bytes(type, s.head_dim);
  uint8_t* at = static_cast<uint8_t*>(base) + slot * s.kv_heads * bytes;
  for (int h = 0; h < s.kv_heads; ++h) write_bytes(at + h * bytes, src + h * s.head_dim, s.head_dim);
}

void heads_in_place(float* x, int heads, int dim, const float* norm, float eps, const float* cos, const float* sin,
                    int half) {
  for (int h = 0; h < heads; ++h) {
    float* head = x + static_cast<ptrdiff_t>(h) * dim;
    if (norm) rms_norm_row(head, dim, norm, eps, head);
    rotate(head, cos, sin, half);
  }
}

struct Place {
  float* row;
  int position;
  int32_t page;
};

}  // namespace

void rope_and_store(Workers& workers, const std::vector<Span>& spans, float* qkv, HeadShape s, RopeTable rope,
                    HeadNorms norms, KvLayer kv) {
  const int q_width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
  const ptrdiff_t ld = q_width + 2 * kv_width;
  std::vector<Place> places;
  for (const Span& span : spans)
    for (int i = 0; i < span.rows; ++i) {
      const int position = span.start + i;
      places.push_back({qkv + (span.first_row + i) * ld, position, span.pages[position / kv.page_size]});
    }
  constexpr int kPiece = 16;
  const int rows = static_cast<int>(places.size());
  const int half = rope.dim / 2;
  workers.run((rows + kPiece - 1) / kPiece, [&](int piece, int) {
    const int last = std::min(rows, (piece + 1) * kPiece);
    for (int i = piece * kPiece; i < last; ++i) {
      const Place& p = places[i];
      const float* cos = rope.cos + static_cast<ptrdiff_t>(p.position) * half;
      const float* sin = rope.sin + static_cast<ptrdiff_t>(p.position) * half;
      heads_in_place(p.row, s.heads, s.head_dim, norms.q, norms.eps, cos, sin, half);
      heads_in_place(p.row + q_width, s.kv_heads, s.head_dim, norms.k, norms.eps, cos, sin, half);
      const size_t slot = static_cast<size_t>(p.page) * kv.page_size + p.position % kv.page_size;
      write_heads(kv.k, slot, p.row + q_width, s, kv.type);
      write_heads(kv.v, slot, p.row + q_width + kv_width, s, kv.type);
    }
  });
}

}  // namespace sapwood
