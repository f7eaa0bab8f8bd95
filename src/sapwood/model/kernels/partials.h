// What a tile gave to each row of the spans whose tiles are computed apart, and how a row's tiles are merged.
#pragma once

#include "attention.h"
#include "softmax.h"

namespace sapwood {

// What the kernels know of a layer's attention.
struct AttentionShape {
  HeadShape heads;
  int group;   // query heads that read one kv head
  int ld;      // padded head dimension
  int window;  // 0: everything
  float scale;
};

// Where the partial of one row with one tile goes.
struct Slot {
  float* max;
  float* sum;
  float* values;  // [ld]
};

// The partials of all rows of one span. A row is a query head of a query: query * heads + head.
class Partials {
 public:
  Partials(const AttentionShape& s, const Span& span);
  size_t floats() const { return static_cast<size_t>(rows_) * row_; }
  void place(float* at) { at_ = at; }
  Slot slot(int row, int tile) const;

  // Merges the tiles that the row sees, in ascending order, into out[head_dim]. `scratch` has scratch_floats().
  void join(int row, int position, float* scratch, float* out) const;
  size_t scratch_floats() const { return 2 * static_cast<size_t>(padded_tiles_); }

 private:
  AttentionShape s_;
  int rows_;
  int first_tile_, tiles_, padded_tiles_;
  size_t row_;  // floats of one row: maxima, sums, values of all tiles
  float* at_ = nullptr;
};

}  // namespace sapwood
