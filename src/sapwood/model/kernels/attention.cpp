#include "attention.h"

#include <algorithm>
#include <limits>

#include "kv_tile.h"
#include "tile.h"

namespace sapwood {

namespace {

constexpr int kRowsPerBlock = 144;  // query rows that share one conversion of a key tile
constexpr int kSplitRows = 12;      // up to here a span's tiles are separate pieces, merged afterwards
constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr float kAbsent = -1.0f;    // the sum of a partial that was not computed: the row sees nothing of the tile

struct Shape {
  HeadShape heads;
  int group;   // query heads that read one kv head
  int ld;      // padded head dimension
  int window;  // 0: everything
  float scale;
};

// A query block against one kv head. Row r is query first + r / group, head kv_head * group + r % group.
struct Block {
  const Span* span;
  int kv_head;
  int first;
  int queries;

  int rows(const Shape& s) const { return queries * s.group; }
  int position(int row, const Shape& s) const { return span->start + first + row / s.group; }
};

struct KeyRange {
  int first, last;  // keys of the tile that a row may see: [first, last)
  bool empty() const { return first >= last; }
};

// Keys that every row with any sees; where there are none, an empty range at the tile's end.
template <int R>
SAPWOOD_INLINE KeyRange common_to(const KeyRange (&keys)[R]) {
  KeyRange all{0, kTileKeys};
  for (int r = 0; r < R; ++r)
    if (!keys[r].empty()) all = {std::max(all.first, keys[r].first), std::min(all.last, keys[r].last)};
  return all.empty() ? KeyRange{kTileKeys, kTileKeys} : all;
}

KeyRange visible(int position, int tile, const Shape& s) {
  const int base = tile * kTileKeys;
  const int from = s.window > 0 ? std::max(0, position - s.window + 1) : 0;
  return {std::max(0, from - base), std::min(kTileKeys, position + 1 - base)};
}

int first_tile(int position, const Shape& s) {
  return s.window > 0 ? std::max(0, position - s.window + 1) / kTileKeys : 0;
}

// What one row knows after some tiles: maximum, sum, weighted values [ld].
struct State {
  float* max;
  float* sum;
  float* values;
};

// The online-softmax merge; the only place where tiles meet.
SAPWOOD_INLINE void merge(State into, float max, float sum, const float* values, int ld) {
  const float top = max > *into.max ? max : *into.max;
  const float old_scale = exp1(*into.max - top), new_scale = exp1(max - top);
  *into.sum = __builtin_fmaf(*into.sum, old_scale, sum * new_scale);
  *into.max = top;
  const f32x8 a = splat(old_scale), b = splat(new_scale);
  for (int d = 0; d < ld; d += kLanes) store(into.values + d, fma(load(into.values + d), a, load(values + d) * b));
}

// Turns a row of scores into exp(score - max) with zeros outside `keys`; lanes are key mod 8, summed by one tree.
SAPWOOD_INLINE void softmax(float* scores, KeyRange keys, float* max, float* sum) {
  std::fill(scores, scores + keys.first, kNone);
  std::fill(scores + keys.last, scores + kTileKeys, kNone);
  f32x8 top = splat(kNone);
  for (int j = 0; j < kTileKeys; j += kLanes) top = sapwood::max(top, load(scores + j));
  *max = max_lanes(top);
  f32x8 total = splat(0.0f);
  for (int j = 0; j < kTileKeys; j += kLanes) {
    const f32x8 e = exp8(load(scores + j) - splat(*max));
    store(scores + j, e);
    total = total + e;
  }
  *sum = sum_lanes(total);
}

// weights · values for one panel of 16 dimensions. A row reads the values of its own keys alone, never a zero times
// somebody's later value (which may be infinite): its first keys, then those common to all rows, then its last.
template <int R>
SAPWOOD_INLINE void mix(const float* weights, const KeyRange (&keys)[R], KeyRange common, const float* values, int ld,
                        f32x8 (&lo)[R], f32x8 (&hi)[R]) {
  const auto own = [&](int r, int first, int last) __attribute__((always_inline)) {
    if (first >= last) return;
    f32x8 one_lo[1] = {lo[r]}, one_hi[1] = {hi[r]};
    tile_on<1>(weights + r * kTileKeys + first, kTileKeys, values + first * ld, ld, last - first, one_lo, one_hi);
    lo[r] = one_lo[0], hi[r] = one_hi[0];
  };
  for (int r = 0; r < R; ++r) {
    lo[r] = hi[r] = splat(0.0f);
    own(r, keys[r].first, std::min(common.first, keys[r].last));
  }
  tile_on<R>(weights + common.first, kTileKeys, values + common.first * ld, ld, common.last - common.first, lo, hi);
  for (int r = 0; r < R; ++r) own(r, std::max(common.last, keys[r].first), keys[r].last);
}

// Partials of R rows with one tile, handed row by row to take(row, max, sum, values).
template <int R, class Take>
SAPWOOD_INLINE void partials(const Shape& s, const Block& b, int row, const float* q, int tile_index, KvTile kv,
                             float* scores, float* out, Take take) {
  KeyRange keys[R];
  int last = 0;
  for (int r = 0; r < R; ++r) {
    keys[r] = visible(b.position(row + r, s), tile_index, s);
    if (!keys[r].empty()) last = std::max(last, keys[r].last);
  }
  if (last == 0) return;
  f32x8 lo[R], hi[R];
  for (int c = 0; c < last; c += 16) {
    tile<R>(q, s.ld, kv.keys + c, kTileKeys, s.heads.head_dim, lo, hi);
    for (int r = 0; r < R; ++r) store(scores + r * kTileKeys + c, lo[r]), store(scores + r * kTileKeys + c + 8, hi[r]);
  }
  float max[R], sum[R];
  for (int r = 0; r < R; ++r)
    if (!keys[r].empty()) softmax(scores + r * kTileKeys, keys[r], &max[r], &sum[r]);
  const KeyRange common = common_to(keys);
  for (int c = 0; c < s.ld; c += 16) {
    mix<R>(scores, keys, common, kv.values + c, s.ld, lo, hi);
    for (int r = 0; r < R; ++r) store(out + r * s.ld + c, lo[r]), store(out + r * s.ld + c + 8, hi[r]);
  }
  for (int r = 0; r < R; ++r)
    if (!keys[r].empty()) take(row + r, max[r], sum[r], out + r * s.ld);
}

// One thread's buffers, carved from its scratch.
struct Desk {
  KvTile kv;
  float *q, *scores, *out, *max, *sum, *values;

  static size_t floats(const Shape& s, int rows) {
    const size_t r = rows, ld = s.ld;
    return 64 * ld * 2 + r * ld * 2 + 6 * (64 + ld) + 2 * r + 64;
  }

  Desk(float* at, const Shape& s, int rows) {
    const auto cut = [&at](size_t n) { float* p = at; at += n; return p; };
    kv = {cut(64 * static_cast<size_t>(s.ld)), cut(64 * static_cast<size_t>(s.ld))};
    q = cut(static_cast<size_t>(rows) * s.ld);
    values = cut(static_cast<size_t>(rows) * s.ld);
    scores = cut(6 * 64);
    out = cut(6 * static_cast<size_t>(s.ld));
    max = cut(rows);
    sum = cut(rows);
  }
};

class Attention {
 public:
  Attention(Workers& workers, const std::vector<Span>& spans, const float* qkv, HeadShape heads, float scale,
            int window, KvLayer kv, float* out)
      : workers_(workers), qkv_(qkv), kv_(kv), out_(out),
        s_{heads, heads.heads / heads.kv_heads, padded(heads.head_dim), window, scale} {
    const int queries = std::max(1, kRowsPerBlock / s_.group);
    for (const Span& span : spans)
      for (int h = 0; h < heads.kv_heads; ++h) {
        if (span.rows * s_.group <= kSplitRows) split(span, h);
        else
          for (int first = 0; first < span.rows; first += queries)
            whole_.push_back({&span, h, first, std::min(queries, span.rows - first)});
      }
    // The last blocks see the most keys: start them first so that no thread is left alone with one.
    std::stable_sort(whole_.begin(), whole_.end(),
                     [](const Block& a, const Block& b) { return end(a) > end(b); });
  }

  void run() {
    results_ = workers_.common(floats_);
    const int whole = static_cast<int>(whole_.size());
    workers_.run(whole + static_cast<int>(parts_.size()), [&](int i, int thread) {
      if (i < whole) run_whole(whole_[i], thread);
      else run_part(parts_[i - whole], thread);
    });
    workers_.run(static_cast<int>(joins_.size()), [&](int i, int thread) { join(joins_[i], thread); });
  }

 private:
  // One tile of a small block; its partials go to results_[at + row * stride].
  struct Part {
    Block block;
    int tile;
    size_t at;
  };
  struct Join {
    Block block;
    int tiles;
    size_t at;
  };

  static int end(const Block& b) { return b.span->start + b.first + b.queries; }
  size_t stride() const { return static_cast<size_t>(s_.ld) + 2; }

  void split(const Span& span, int kv_head) {
    const Block block{&span, kv_head, 0, span.rows};
    const int from = first_tile(span.start, s_), to = (end(block) - 1) / kTileKeys;
    joins_.push_back({block, to - from + 1, floats_});
    for (int t = from; t <= to; ++t) {
      parts_.push_back({block, t, floats_});
      floats_ += stride() * static_cast<size_t>(block.rows(s_));
    }
  }

  void gather(const Block& b, float* q) const {
    const int dim = s_.heads.head_dim;
    const ptrdiff_t ld = static_cast<ptrdiff_t>(s_.heads.heads + 2 * s_.heads.kv_heads) * dim;
    for (int r = 0; r < b.rows(s_); ++r) {
      const int head = b.kv_head * s_.group + r % s_.group;
      const float* src = qkv_ + (b.span->first_row + b.first + r / s_.group) * ld + static_cast<ptrdiff_t>(head) * dim;
      for (int d = 0; d < dim; ++d) q[r * s_.ld + d] = src[d] * s_.scale;
    }
  }

  template <class Take>
  void one_tile(const Block& b, int t, const Desk& desk, Take take) const {
    const int count = std::min(kTileKeys, end(b) - t * kTileKeys);
    load_tile(kv_, *b.span, s_.heads, b.kv_head, t, count, desk.kv);
    in_tiles(b.rows(s_), [&](int row, int n) {
      with_rows(n, [&](auto r) {
        partials<r>(s_, b, row, desk.q + row * s_.ld, t, desk.kv, desk.scores, desk.out, take);
      });
    });
  }

  void write(const Block& b, int row, const float* values, float sum) const {
    const int dim = s_.heads.head_dim, head = b.kv_head * s_.group + row % s_.group;
    float* dst = out_ + (b.span->first_row + b.first + row / s_.group) * static_cast<ptrdiff_t>(s_.heads.heads) * dim +
                 static_cast<ptrdiff_t>(head) * dim;
    for (int d = 0; d < dim; ++d) dst[d] = values[d] / sum;
  }

  void run_whole(const Block& b, int thread) {
    const int rows = b.rows(s_);
    Desk desk(workers_.scratch(thread, Desk::floats(s_, rows)), s_, rows);
    gather(b, desk.q);
    std::fill(desk.max, desk.max + rows, kNone);
    std::fill(desk.sum, desk.sum + rows, 0.0f);
    std::fill(desk.values, desk.values + static_cast<size_t>(rows) * s_.ld, 0.0f);
    for (int t = first_tile(b.position(0, s_), s_); t <= (end(b) - 1) / kTileKeys; ++t)
      one_tile(b, t, desk, [&](int row, float max, float sum, const float* values) {
        merge({desk.max + row, desk.sum + row, desk.values + row * s_.ld}, max, sum, values, s_.ld);
      });
    for (int r = 0; r < rows; ++r) write(b, r, desk.values + r * s_.ld, desk.sum[r]);
  }

  void run_part(const Part& p, int thread) {
    const int rows = p.block.rows(s_);
    Desk desk(workers_.scratch(thread, Desk::floats(s_, rows)), s_, rows);
    gather(p.block, desk.q);
    for (int r = 0; r < rows; ++r) results_[p.at + r * stride() + 1] = kAbsent;
    one_tile(p.block, p.tile, desk, [&](int row, float max, float sum, const float* values) {
      float* slot = results_ + p.at + row * stride();
      slot[0] = max;
      slot[1] = sum;
      std::copy(values, values + s_.ld, slot + 2);
    });
  }

  void join(const Join& j, int thread) {
    float* values = workers_.scratch(thread, s_.ld);
    const int rows = j.block.rows(s_);
    for (int r = 0; r < rows; ++r) {
      float max = kNone, sum = 0.0f;
      std::fill(values, values + s_.ld, 0.0f);
      for (int t = 0; t < j.tiles; ++t) {
        const float* slot = results_ + j.at + (static_cast<size_t>(t) * rows + r) * stride();
        if (slot[1] != kAbsent) merge({&max, &sum, values}, slot[0], slot[1], slot + 2, s_.ld);
      }
      write(j.block, r, values, sum);
    }
  }

  Workers& workers_;
  const float* qkv_;
  KvLayer kv_;
  float* out_;
  Shape s_;
  std::vector<Block> whole_;
  std::vector<Part> parts_;
  std::vector<Join> joins_;
  float* results_ = nullptr;  // partials of parts_
  size_t floats_ = 0;
};

}  // namespace

void attention(Workers& workers, const std::vector<Span>& spans, const float* qkv, HeadShape shape, float scale,
               int window, KvLayer kv, float* out) {
  Attention(workers, spans, qkv, shape, scale, window, kv, out).run();
}

}  // namespace sapwood
