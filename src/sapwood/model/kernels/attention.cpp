#include "attention.h"

#include <algorithm>

#include "kv_tile.h"
#include "many_rows.h"
#include "one_query.h"
#include "partials.h"
#include "trunks.h"

namespace sapwood {

namespace {

constexpr int kRowsPerBlock = 144;  // query rows of one sequence that share one conversion of a tile
constexpr int kLeastRows = 36;      // of a block, where more blocks are wanted for the threads
constexpr int kApartRows = 64;      // of a span whose tiles are computed apart, trunks together, and merged afterwards
constexpr int kPiecesPerThread = 8;
constexpr int kMostTiles = 16;      // of one piece

// The partials of a call take no more (32 MiB), but that each span of one query may have its own: those are at most
// group / 64 of the keys that it reads. Beyond it spans are computed in blocks, which keep no partials.
constexpr size_t kMostFloats = size_t{8} << 20;

// A long span's queries against one kv head, tile after tile. Row r is query first + r / group, and query head
// kv_head * group + r % group.
struct Block {
  int span;
  int kv_head;
  int first, queries;
  int end;  // position after its last query
};

// Tiles [first, last) of a stretch for one kv head, or for all of them where one query reads them from the pages.
struct Part {
  const std::vector<int>* spans;  // those whose tiles are computed apart
  int kv_head;
  int first, last;
};

struct Query {
  int span;
  int index;  // of its rows
};

class Attention {
 public:
  Attention(Workers& workers, const std::vector<Span>& spans, const float* qkv, HeadShape heads, float scale,
            int window, KvLayer kv, float* out)
      : workers_(workers), spans_(spans), qkv_(qkv), kv_(kv), out_(out),
        s_{heads, heads.heads / heads.kv_heads, padded(heads.head_dim), window, scale} {}

  void run(const std::vector<Stretch>& stretches) {
    cut_spans();
    cut_stretches(stretches);
    float* at = workers_.common(floats_);
    for (Partials& p : partials_) p.place(at), at += p.floats();
    const int blocks = count(blocks_), shared = count(shared_);
    workers_.run(blocks + shared + count(lone_), [&](int i, int thread) {
      if (i < blocks) run_block(blocks_[i], thread);
      else if (i < blocks + shared) run_shared(shared_[i - blocks], thread);
      else run_lone(i - blocks - shared, thread);
    });
    workers_.run(count(apart_), [&](int i, int thread) { join(apart_[i], thread); });
  }

 private:
  template <class T>
  static int count(const std::vector<T>& v) { return static_cast<int>(v.size()); }
  bool is_apart(int span) const { return partial_of_[span] != count(spans_); }

  void cut_spans() {
    partials_.reserve(spans_.size());
    for (int i = 0; i < count(spans_); ++i) {
      const Span& span = spans_[i];
      const Partials partials(s_, span);
      const bool fits = span.rows == 1 || floats_ + partials.floats() <= kMostFloats;
      const bool apart = fits && span.rows * s_.group <= kApartRows;
      partial_of_.push_back(apart ? count(partials_) : count(spans_));
      if (!apart) {
        cut_blocks(i);
        continue;
      }
      partials_.push_back(partials);
      floats_ += partials.floats();
      for (int q = 0; q < span.rows; ++q) apart_.push_back({i, q});
    }
    // The last blocks see the most keys: start them first so that no thread is left alone with one.
    std::stable_sort(blocks_.begin(), blocks_.end(), [](const Block& a, const Block& b) { return a.end > b.end; });
  }

  void cut_blocks(int span) {
    const Span& of = spans_[span];
    const int wanted = of.rows * s_.heads.kv_heads / (workers_.threads() * kPiecesPerThread);
    const int queries = std::clamp(wanted, std::max(1, kLeastRows / s_.group), std::max(1, kRowsPerBlock / s_.group));
    for (int first = 0; first < of.rows; first += queries)
      for (int h = 0; h < s_.heads.kv_heads; ++h) {
        const int n = std::min(queries, of.rows - first);
        blocks_.push_back({span, h, first, n, of.start + first + n});
      }
  }

  // The stretches of spans whose tiles are computed apart, in pieces small enough for all threads.
  void cut_stretches(const std::vector<Stretch>& stretches) {
    members_.reserve(stretches.size());
    std::vector<Part> lone, shared;
    for (const Stretch& stretch : stretches) {
      std::vector<int> spans;
      int queries = 0, first = stretch.last;
      for (int i : stretch.spans)
        if (is_apart(i)) {
          spans.push_back(i);
          queries += spans_[i].rows;
          first = std::min(first, first_seen(spans_[i].start, s_.window) / kTileKeys);
        }
      first = std::max(first, stretch.first);
      if (first >= stretch.last || spans.empty()) continue;
      members_.push_back(std::move(spans));
      (queries == 1 && reads_directly(s_) ? lone : shared).push_back({&members_.back(), 0, first, stretch.last});
    }
    cut(lone, 1, &lone_);
    cut(shared, s_.heads.kv_heads, &shared_);
  }

  void cut(const std::vector<Part>& parts, int kv_heads, std::vector<Part>* into) const {
    int tiles = 0;
    for (const Part& p : parts) tiles += (p.last - p.first) * kv_heads;
    const int each = std::clamp(tiles / (workers_.threads() * kPiecesPerThread), 1, kMostTiles);
    for (const Part& p : parts)
      for (int t = p.first; t < p.last; t += each)
        for (int h = 0; h < kv_heads; ++h) into->push_back({p.spans, h, t, std::min(t + each, p.last)});
  }

  // One query's heads of one kv head, scaled, to q[group][ld].
  void gather(int span, int query, int kv_head, float* q) const {
    const int dim = s_.heads.head_dim;
    const ptrdiff_t width = static_cast<ptrdiff_t>(s_.heads.heads + 2 * s_.heads.kv_heads) * dim;
    const ptrdiff_t head = static_cast<ptrdiff_t>(kv_head) * s_.group * dim;
    const float* src = qkv_ + (spans_[span].first_row + query) * width + head;
    for (int r = 0; r < s_.group; ++r)
      for (int d = 0; d < dim; ++d) q[r * s_.ld + d] = src[r * dim + d] * s_.scale;
  }

  float* row_of(int span, int query, int head) const {
    const int row = spans_[span].first_row + query;
    return out_ + (static_cast<ptrdiff_t>(row) * s_.heads.heads + head) * s_.heads.head_dim;
  }

  Slot slot(int span, int query, int head, int tile) const {
    return partials_[partial_of_[span]].slot(query * s_.heads.heads + head, tile);
  }

  // Buffers of `rows` query rows and one converted tile.
  struct Desk {
    KvTile kv;
    float *q, *values, *max, *sum;

    static size_t floats(const AttentionShape& s, int rows) {
      return 2 * kTileKeys * static_cast<size_t>(s.ld) + static_cast<size_t>(rows) * (2 * s.ld + 2);
    }
    Desk(float* at, const AttentionShape& s, int rows) {
      const auto take = [&at](size_t n) { float* p = at; at += n; return p; };
      const size_t tile = kTileKeys * static_cast<size_t>(s.ld), row = static_cast<size_t>(rows) * s.ld;
      kv.keys = take(tile), kv.values = take(tile), q = take(row), values = take(row);
      max = take(static_cast<size_t>(rows)), sum = take(static_cast<size_t>(rows));
    }
  };

  TileRows rows_of(int span, int tile, int end) const {
    return tile_rows(kv_, s_.heads, spans_[span], tile, std::min(kTileKeys, end - tile * kTileKeys));
  }

  void convert(int span, int kv_head, int tile, int end, KvTile out) const {
    const int keys = std::min(kTileKeys, end - tile * kTileKeys);
    load_tile(kv_, s_.heads, rows_of(span, tile, end), kv_head, keys, out);
  }

  void run_block(const Block& b, int thread) const {
    const int rows = b.queries * s_.group;
    Desk desk(workers_.scratch(thread, Desk::floats(s_, rows)), s_, rows);
    std::vector<int> positions(static_cast<size_t>(rows));
    for (int r = 0; r < rows; ++r) positions[r] = b.end - b.queries + r / s_.group;
    for (int q = 0; q < b.queries; ++q) gather(b.span, b.first + q, b.kv_head, desk.q + q * s_.group * s_.ld);
    std::fill(desk.max, desk.max + rows, kNone);
    std::fill(desk.sum, desk.sum + rows, 0.0f);
    std::fill(desk.values, desk.values + static_cast<size_t>(rows) * s_.ld, 0.0f);
    OnlineSink sink{desk.max, desk.sum, desk.values, s_.ld, 0, {}, {}};
    Strip strip;
    for (int t = first_seen(positions[0], s_.window) / kTileKeys; t <= (b.end - 1) / kTileKeys; ++t) {
      convert(b.span, b.kv_head, t, b.end, desk.kv);
      attend_rows(s_, {desk.q, positions.data(), rows}, t, desk.kv, strip, sink);
    }
    for (int r = 0; r < rows; ++r) {
      float* out = row_of(b.span, b.first + r / s_.group, b.kv_head * s_.group + r % s_.group);
      for (int d = 0; d < s_.heads.head_dim; ++d) out[d] = desk.values[r * s_.ld + d] / desk.sum[r];
    }
  }

  void run_shared(const Part& p, int thread) const {
    std::vector<Query> queries;
    for (int i : *p.spans)
      for (int q = 0; q < spans_[i].rows; ++q) queries.push_back({i, q});
    const int rows = count(queries) * s_.group;
    Desk desk(workers_.scratch(thread, Desk::floats(s_, rows)), s_, rows);
    std::vector<int> positions;
    for (int i = 0; i < count(queries); ++i) {
      positions.insert(positions.end(), s_.group, spans_[queries[i].span].start + queries[i].index);
      gather(queries[i].span, queries[i].index, p.kv_head, desk.q + i * s_.group * s_.ld);
    }
    std::vector<Slot> slots(static_cast<size_t>(rows));
    PartialSink sink{slots.data()};
    Strip strip;
    const int any = p.spans->front(), end = spans_[any].start + spans_[any].rows;
    fetch_tile(kv_.type, s_.heads, rows_of(any, p.first, end), p.kv_head);
    for (int t = p.first; t < p.last; ++t) {
      convert(any, p.kv_head, t, end, desk.kv);
      if (t + 1 < p.last) fetch_tile(kv_.type, s_.heads, rows_of(any, t + 1, end), p.kv_head);
      for (int r = 0; r < rows; ++r) {
        const Query& q = queries[r / s_.group];
        if (!visible(positions[r], t, s_.window).empty())
          slots[r] = slot(q.span, q.index, p.kv_head * s_.group + r % s_.group, t);
      }
      attend_rows(s_, {desk.q, positions.data(), rows}, t, desk.kv, strip, sink);
    }
  }

  TileRows first_rows(const Part& p) const {
    const int span = p.spans->front();
    return rows_of(span, p.first, spans_[span].start + 1);
  }

  // Fetches its first tile at once, as nobody may have done so, and at its end the first of the piece that this thread
  // takes next if all are equally fast.
  void run_lone(int index, int thread) const {
    const Part& p = lone_[index];
    const int span = p.spans->front(), position = spans_[span].start;
    const int group = s_.group * s_.ld;
    float* q = workers_.scratch(thread, static_cast<size_t>(s_.heads.kv_heads) * group);
    for (int h = 0; h < s_.heads.kv_heads; ++h) gather(span, 0, h, q + h * group);
    TileRows next = first_rows(p);
    for (int h = 0; h < s_.heads.kv_heads; ++h) fetch_tile(kv_.type, s_.heads, next, h);
    for (int t = p.first; t < p.last; ++t) {
      const TileRows here = next;
      if (t + 1 < p.last) next = rows_of(span, t + 1, position + 1);
      else if (index + workers_.threads() < count(lone_)) next = first_rows(lone_[index + workers_.threads()]);
      for (int h = 0; h < s_.heads.kv_heads; ++h) {
        Slot slots[kMostHeads];
        for (int r = 0; r < s_.group; ++r) slots[r] = slot(span, 0, h * s_.group + r, t);
        attend_one(s_, kv_.type, {&here, &next, h, visible(position, t, s_.window)}, q + h * group, slots);
      }
    }
  }

  void join(const Query& q, int thread) const {
    const Partials& partials = partials_[partial_of_[q.span]];
    float* scratch = workers_.scratch(thread, partials.scratch_floats());
    for (int h = 0; h < s_.heads.heads; ++h)
      partials.join(q.index * s_.heads.heads + h, spans_[q.span].start + q.index, scratch, row_of(q.span, q.index, h));
  }

  Workers& workers_;
  const std::vector<Span>& spans_;
  const float* qkv_;
  KvLayer kv_;
  float* out_;
  AttentionShape s_;
  std::vector<Block> blocks_;
  std::vector<Part> shared_, lone_;
  std::vector<std::vector<int>> members_;  // of the stretches; parts point here
  std::vector<Query> apart_;
  std::vector<Partials> partials_;
  std::vector<int> partial_of_;  // by span
  size_t floats_ = 0;
};

}  // namespace

void attention(Workers& workers, const std::vector<Span>& spans, const std::vector<Stretch>& stretches,
               const float* qkv, HeadShape shape, float scale, int window, KvLayer kv, float* out) {
  Attention(workers, spans, qkv, shape, scale, window, kv, out).run(stretches);
}

}  // namespace sapwood
