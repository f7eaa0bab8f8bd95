// Attention over paged KV, tile by tile.
//
// Keys are taken in tiles of 64 aligned to absolute positions. A tile's partial result (maximum, sum, weighted values)
// depends on the query and the tile alone; partials are merged in ascending order with the online-softmax rule. So
// neither the chunk that wrote a key nor the neighbours of a query can move a bit, and tiles may be shared or split
// over threads freely (FlashAttention's merge, Dao et al. 2022, section 3.1; Hydragen, Juravsky et al. 2024).
#pragma once

#include <cstdint>
#include <vector>

#include "workers.h"

namespace sapwood {

constexpr int kTileKeys = 64;

enum class KvType { f16, bf16, f32, q8 };

struct HeadShape {
  int heads;
  int kv_heads;
  int head_dim;
};

// One sequence's share of a step. Rows are rows of the step's token matrix.
struct Span {
  int first_row;
  int rows;
  int start;               // position of first_row
  const int32_t* pages;    // page table covering positions 0 .. start + rows - 1
};

// One layer's pages: row (page, offset, kv head) is number (page * page_size + offset) * kv_heads + head. It holds
// head_dim values; with q8 as int8, followed by their float32 scale.
struct KvLayer {
  void* k;
  void* v;
  KvType type;
  int page_size;
};

// Rotates q in place (half-split), rounds k and v to the KV type and writes them to their pages. With norm weights,
// q and k heads are RMS-normed first (Qwen3). qkv is [rows][(heads + 2·kv_heads)·head_dim]; cosines and sines are
// [max_position][rope_dim / 2].
struct RopeTable {
  const float* cos;
  const float* sin;
  int dim;
};

struct HeadNorms {
  const float* q = nullptr;
  const float* k = nullptr;
  float eps = 0.0f;
};

void rope_and_store(Workers& workers, const std::vector<Span>& spans, float* qkv, HeadShape shape, RopeTable rope,
                    HeadNorms norms, KvLayer kv);

struct Stretch;

// out[row][head·head_dim + d]. `stretches` are those of the spans (trunks.h). `window` 0 sees everything; w sees the
// last w positions, the query's own included.
void attention(Workers& workers, const std::vector<Span>& spans, const std::vector<Stretch>& stretches,
               const float* qkv, HeadShape shape, float scale, int window, KvLayer kv, float* out);

}  // namespace sapwood
