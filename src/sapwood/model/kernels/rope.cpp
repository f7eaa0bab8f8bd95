#include <algorithm>

#include "attention.h"
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
      write(kv.k, slot * kv_width, p.row + q_width, kv_width, kv.type);
      write(kv.v, slot * kv_width, p.row + q_width + kv_width, kv_width, kv.type);
    }
  });
}

}  // namespace sapwood
