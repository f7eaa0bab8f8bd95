#include "linear.h"

#include <algorithm>
#include <cmath>

#include "formats.h"
#include "int_kernels.h"
#include "tile.h"

namespace sapwood {

namespace {

constexpr int kRowBlock = 128;   // most rows of one piece: its inputs stay in L2
constexpr int kPanelGroup = 4;   // most panels of one piece
constexpr int kPieces = 16;      // for each thread, where panels suffice: one piece is the longest wait
constexpr int kFewRows = 8;      // most rows that direct products take

int ceil_div(int a, int b) { return (a + b - 1) / b; }

struct Rows {
  const float* x;
  ptrdiff_t ld;
  int count;

  Rows from(int row, int n) const { return {x + row * ld, ld, n}; }
};

// The rows of a call in each form that some of its panels want: float32, 16-bit and 8-bit integers.
struct Inputs {
  Rows floats;
  IntRows ints;
  Int8Rows bytes;
  int count;
  const IntKernels& kernels;
};

// Which of them some panel of a call wants.
struct Wanted {
  bool floats, ints, bytes;
};

Wanted wanted(const PackedMatrix& w) {
  return {w.uses(Compute::f32), w.uses(Compute::integer), w.uses(Compute::int8)};
}

// Room for all of them in the scratch that pieces share, one after another.
struct Common {
  float *floats, *scales, *sums, *byte_scales, *block_scales, *byte_sums;
  int16_t* q;
  int8_t* bytes;
};

Common common(Workers& workers, int rows, int width, Wanted w) {
  const size_t n = static_cast<size_t>(rows), all = n * static_cast<size_t>(width), blocks = n * (width / kBlock);
  const size_t sizes[] = {w.ints ? all / 2 : 0, w.bytes ? all / 4 : 0, w.floats ? all : 0,     w.ints ? n : 0,
                          w.ints ? blocks : 0,  w.bytes ? n : 0,       w.bytes ? blocks : 0, w.bytes ? blocks : 0};
  float* at[9] = {};
  size_t total = 0;
  for (size_t size : sizes) total += size;
  at[0] = workers.common(total);
  for (int i = 0; i < 8; ++i) at[i + 1] = at[i] + sizes[i];
  return {at[2], at[3], at[4], at[5],
          at[6], at[7], reinterpret_cast<int16_t*>(at[0]), reinterpret_cast<int8_t*>(at[1])};
}

void quantise(const float* x, int width, int row, Wanted w, const Common& to) {
  const size_t at = static_cast<size_t>(row) * width, block = static_cast<size_t>(row) * (width / kBlock);
  if (w.ints) to.scales[row] = quantise_row(x, width, to.q + at, to.sums + block);
  if (w.bytes)
    to.byte_scales[row] =
        quantise_row_to_8(x, width, to.bytes + at, to.block_scales + block, to.byte_sums + block);
}

// Each row is normed and quantised once, before all pieces.
Inputs prepared(Workers& workers, Input in, int width, Wanted w, const IntKernels& kernels) {
  const Rows given = {in.x, in.ld, in.rows};
  if (!w.ints && !w.bytes && !in.norm) return {given, {}, {}, in.rows, kernels};
  w.floats = w.floats && in.norm;
  const Common to = common(workers, in.rows, width, w);
  const int piece = std::clamp(ceil_div(in.rows, workers.threads()), 4, 16);
  workers.run(ceil_div(in.rows, piece), [&](int i, int thread) {
    const int last = std::min(in.rows, (i + 1) * piece);
    for (int r = i * piece; r < last; ++r) {
      const float* x = in.x + r * in.ld;
      if (in.norm) {
        float* y = w.floats ? to.floats + static_cast<size_t>(r) * width : workers.scratch(thread, width);
        rms_norm_row(x, width, in.norm, in.eps, y);
        x = y;
      }
      quantise(x, width, r, w, to);
    }
  });
  return {w.floats ? Rows{to.floats, width, in.rows} : given,
          {to.q, width, to.scales, to.sums, in.rows},
          {to.bytes, width, to.byte_scales, to.block_scales, to.byte_sums, in.rows},
          in.rows,
          kernels};
}

// Up to so many rows, weights are unpacked in registers; beyond it, once into scratch. q4 needs more registers.
int direct_limit(const Panel& panel) {
  if (panel.compute != Compute::f32) return kFewRows;
  return panel.format == Format::q4_0 || panel.format == Format::q4_1 ? 3 : 4;
}

// P panels for R rows, weights unpacked in registers.
template <int R, int P, class Reader>
void direct(const Panel* panels, int depth, Rows rows, float (*out)[kFewRows][kPanel]) {
  f32x8 sum[P][R][2];
  const uint8_t* data[P];
  for (int p = 0; p < P; ++p) {
    data[p] = panels[p].data;
    for (int r = 0; r < R; ++r) sum[p][r][0] = sum[p][r][1] = splat(0.0f);
  }
  walk<Reader>(static_cast<const uint8_t* const(&)[P]>(data), depth,
               [&](int k, int p, int half, f32x8 w) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sum[p][r][half] = fma(splat(rows.x[r * rows.ld + k]), w, sum[p][r][half]);
  });
  for (int p = 0; p < P; ++p)
    for (int r = 0; r < R; ++r) store(out[p][r], sum[p][r][0]), store(out[p][r] + 8, sum[p][r][1]);
}

template <int P>
void direct_rows(const Panel* panels, int depth, Rows rows, float (*out)[kFewRows][kPanel]) {
  with_format(panels[0].format, [&](auto reader) {
    using Reader = decltype(reader);
    switch (rows.count) {
      case 1: return direct<1, P, Reader>(panels, depth, rows, out);
      case 2: return direct<2, Reader::kHeader ? 1 : P, Reader>(panels, depth, rows, out);
      case 3: return direct<3, 1, Reader>(panels, depth, rows, out);
      default: return direct<4, 1, Reader>(panels, depth, rows, out);
    }
  });
}

void int_direct(const IntKernels& kernels, const Panel& panel, int depth, IntRows rows, float (*out)[kPanel]) {
  for (int first = 0; first < rows.count; first += kIntDirectRows)
    kernels.direct(panel, depth, rows.from(first, std::min(kIntDirectRows, rows.count - first)), out + first);
}

void int8_direct(const IntKernels& kernels, const Panel& panel, int depth, Int8Rows rows, float (*out)[kPanel]) {
  for (int first = 0; first < rows.count; first += kIntRows)
    kernels.direct8(panel, depth, rows.from(first, std::min(kIntRows, rows.count - first)), out + first);
}

// Handles panels[0] and, where one row's chain alone would wait for itself, panels[1]; says how many.
int direct_some(const Panel* panels, int left, int depth, const Inputs& x, float (*out)[kFewRows][kPanel]) {
  if (panels[0].compute == Compute::integer) {
    int_direct(x.kernels, panels[0], depth, x.ints, out[0]);
    return 1;
  }
  if (panels[0].compute == Compute::int8) {
    int8_direct(x.kernels, panels[0], depth, x.bytes, out[0]);
    return 1;
  }
  const bool registers = x.count == 1 || (x.count == 2 && !has_blocks(panels[0].format));
  const bool two = left > 1 && registers && panels[1].format == panels[0].format && panels[1].compute == Compute::f32;
  if (two) direct_rows<2>(panels, depth, x.floats, out);
  else direct_rows<1>(panels, depth, x.floats, out);
  return two ? 2 : 1;
}

size_t unpacked_floats(int depth) {
  return std::max(static_cast<size_t>(depth) * kPanel, (expanded_bytes(depth) + 3) / 4);
}

// A panel of floats as tiles want it, in scratch unless it lies so already.
const float* unpacked(const Panel& panel, int depth, float* scratch) {
  if (panel.format == Format::f32) return reinterpret_cast<const float*>(panel.data);
  unpack_panel(panel, depth, scratch);
  return scratch;
}

void float_tile(const float* weights, int depth, Rows rows, float (*out)[kPanel]) {
  with_rows(rows.count, [&](auto r) {
    f32x8 lo[r], hi[r];
    tile<r>(rows.x, rows.ld, weights, kPanel, depth, lo, hi);
    for (int i = 0; i < r; ++i) store(out[i], lo[i]), store(out[i] + 8, hi[i]);
  });
}

f32x8 finished(f32x8 v, const float* bias, const float* at, bool accumulate) {
  if (bias) v = v + load(bias);
  return accumulate ? load(at) + v : v;
}

void finish(const Panel& panel, int first_row, int rows, const float (*tile_out)[kPanel], Output out, Epilogue e) {
  const float* bias = e.bias ? e.bias + panel.first : nullptr;
  for (int r = 0; r < rows; ++r) {
    float* row = out.data + (first_row + r) * out.ld + panel.first;
    if (panel.width == kPanel) {
      for (int c = 0; c < kPanel; c += kLanes)
        store(row + c, finished(load(tile_out[r] + c), bias ? bias + c : nullptr, row + c, e.accumulate));
      continue;
    }
    for (int c = 0; c < panel.width; ++c) {
      float v = tile_out[r][c];
      if (bias) v = v + bias[c];
      row[c] = e.accumulate ? row[c] + v : v;
    }
  }
}

// Both activations are g / (1 + exp(e)). GELU's tanh(u) is 1 - 2 / (exp(2u) + 1), so there e is -2u, a cubic of g.
SAPWOOD_INLINE f32x8 exponent(Activation activation, f32x8 g) {
  if (activation == Activation::silu) return -g;
  return g * fma(g * g, splat(-0.0713548162726f), splat(-1.5957691216057f));
}

void activated_times(Activation activation, const float (*gate)[kPanel], const float (*up)[kPanel], int rows,
                     float (*out)[kPanel]) {
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < kPanel; c += kLanes) {
      const f32x8 g = load(gate[r] + c);
      store(out[r] + c, g / (splat(1.0f) + exp8(exponent(activation, g))) * load(up[r] + c));
    }
}

// What a thread does at a time.
struct Piece {
  int row, rows;           // of the call
  int first, last;         // panels
  int next;                // the panel that its thread probably takes next
  int thread;
};

// Rows × panels in pieces of `group` panels: body(Piece).
template <class Body>
void in_pieces(Workers& workers, int rows, int panels, int group, Body body) {
  const int row_blocks = ceil_div(rows, kRowBlock), height = ceil_div(rows, row_blocks);
  const int groups = ceil_div(panels, group);
  workers.run(row_blocks * groups, [&](int i, int thread) {
    const int row = i / groups * height, first = i % groups * group;
    body(Piece{row, std::min(height, rows - row), first, std::min(panels, first + group),
               first + workers.threads() * group, thread});
  });
}

// Panels of a piece: at most so many, and such that all threads end together.
int few_rows_group(int panels, int threads, int most) {
  return ceil_div(panels, threads * ceil_div(panels, threads * most));
}

int group_of(int rows, int panels, int threads, int most) {
  return std::clamp(ceil_div(rows, kRowBlock) * panels / (threads * kPieces), 1, most);
}

// Fetches the panel that is unpacked next while the present one is multiplied, some lines with each tile.
class NextPanel {
 public:
  NextPanel(const std::vector<Panel>& panels, int panel, int depth, int rows) {
    if (panel >= static_cast<int>(panels.size())) return;
    const int lines = static_cast<int>(panel_bytes(panels[panel].format, depth) / 64);
    at_ = panels[panel].data, end_ = at_ + lines * 64, step_ = ceil_div(lines, ceil_div(rows, kTileRows)) * 64;
  }
  void fetch_some() {
    for (const uint8_t* const to = std::min(end_, at_ + step_); at_ < to; at_ += 64) __builtin_prefetch(at_, 0, 2);
  }

 private:
  const uint8_t *at_ = nullptr, *end_ = nullptr;
  int step_ = 0;
};

// One panel times the rows of a piece, in tiles: place(row) says where they go, row the first of a tile, and
// done(row, rows) is told that they are there. Rows count from the piece's first.
template <class Place, class Done>
void in_row_tiles(const Panel& panel, int depth, const Inputs& x, const Piece& piece, float* scratch, NextPanel next,
                  Place place, Done done) {
  if (panel.compute == Compute::int8) {
    return in_tiles(piece.rows, [&](int row, int n) {
      next.fetch_some();
      x.kernels.direct8(panel, depth, x.bytes.from(piece.row + row, n), place(row));
      done(row, n);
    });
  }
  if (panel.compute == Compute::integer) {
    uint8_t* const expanded = reinterpret_cast<uint8_t*>(scratch);
    const int head = std::min(kIntDirectRows, piece.rows);
    next.fetch_some();
    x.kernels.expand(panel, depth, x.ints.from(piece.row, head), place(0), expanded);
    done(0, head);
    return in_tiles(piece.rows - head, [&](int tile, int n) {
      const int row = head + tile;
      next.fetch_some();
      x.kernels.tiled(expanded, panel.format, depth, x.ints.from(piece.row + row, n), place(row));
      done(row, n);
    });
  }
  const float* weights = unpacked(panel, depth, scratch);
  in_tiles(piece.rows, [&](int row, int n) {
    next.fetch_some();
    float_tile(weights, depth, x.floats.from(piece.row + row, n), place(row));
    done(row, n);
  });
}

}  // namespace

void linear(Workers& workers, Input in, const PackedMatrix& w, Output out, Epilogue epilogue) {
  if (in.rows == 0) return;
  const int depth = w.inputs();
  const auto& panels = w.panels();
  const Inputs x = prepared(workers, in, depth, wanted(w), w.kernels());
  const int count = static_cast<int>(panels.size()), threads = workers.threads();
  const bool few_rows = x.count <= direct_limit(panels[0]);
  const int group = few_rows ? few_rows_group(count, threads, 2 * kPanelGroup)
                             : group_of(x.count, count, threads, kPanelGroup);
  in_pieces(workers, x.count, count, group, [&](const Piece& piece) {
    float* scratch = workers.scratch(piece.thread, unpacked_floats(depth));
    alignas(32) float t[kTileRows][kPanel], few[2][kFewRows][kPanel];
    for (int p = piece.first, done; p < piece.last; p += done) {
      if (x.count <= direct_limit(panels[p])) {
        done = direct_some(&panels[p], piece.last - p, depth, x, few);
        for (int i = 0; i < done; ++i) finish(panels[p + i], 0, x.count, few[i], out, epilogue);
        continue;
      }
      const NextPanel next(panels, p + 1 < piece.last ? p + 1 : piece.next, depth, piece.rows);
      in_row_tiles(panels[p], depth, x, piece, scratch, next, [&](int) { return t; }, [&](int row, int n) {
        finish(panels[p], piece.row + row, n, t, out, epilogue);
      });
      done = 1;
    }
  });
}

void gated_linear(Workers& workers, Input in, const PackedMatrix& gate, const PackedMatrix& up, Activation activation,
                  Output out) {
  if (in.rows == 0) return;
  const int depth = gate.inputs();
  const Wanted a = wanted(gate), b = wanted(up);
  const Wanted either = {a.floats || b.floats, a.ints || b.ints, a.bytes || b.bytes};
  const Inputs x = prepared(workers, in, depth, either, gate.kernels());
  const int few_limit = std::min(direct_limit(gate.panels()[0]), direct_limit(up.panels()[0]));
  const int count = static_cast<int>(gate.panels().size()), threads = workers.threads();
  const int group = x.count <= few_limit ? few_rows_group(count, threads, kPanelGroup)
                                         : group_of(x.count, count, threads, kPanelGroup / 2);
  in_pieces(workers, x.count, count, group, [&](const Piece& piece) {
    float* scratch = workers.scratch(piece.thread, unpacked_floats(depth));
    alignas(32) float g[kRowBlock][kPanel], u[kTileRows][kPanel], few[2][kFewRows][kPanel];
    for (int p = piece.first; p < piece.last; ++p) {
      const Panel pair[2] = {gate.panels()[p], up.panels()[p]};
      const Panel &gp = pair[0], &upp = pair[1];
      if (x.count <= std::min(direct_limit(gp), direct_limit(upp))) {
        if (direct_some(pair, 2, depth, x, few) == 1) direct_some(pair + 1, 1, depth, x, few + 1);
        activated_times(activation, few[0], few[1], x.count, few[0]);
        finish(gp, 0, x.count, few[0], out, {});
        continue;
      }
      // One panel after the other: both at once do not fit into the first cache.
      const NextPanel next_up(up.panels(), p, depth, piece.rows);
      in_row_tiles(gp, depth, x, piece, scratch, next_up, [&](int row) { return g + row; }, [](int, int) {});
      const NextPanel next_gate(gate.panels(), p + 1 < piece.last ? p + 1 : piece.next, depth, piece.rows);
      in_row_tiles(upp, depth, x, piece, scratch, next_gate, [&](int) { return u; }, [&](int row, int n) {
        activated_times(activation, g + row, u, n, u);
        finish(gp, piece.row + row, n, u, out, {});
      });
    }
  });
}

void rms_norm_row(const float* x, int width, const float* weight, float eps, float* y, bool accumulate) {
  f32x8 squares = splat(0.0f);
  const int whole = width / kLanes * kLanes;
  for (int i = 0; i < whole; i += kLanes) squares = fma(load(x + i), load(x + i), squares);
  if (whole < width) {
    float rest[kLanes] = {};
    std::copy(x + whole, x + width, rest);
    squares = fma(load(rest), load(rest), squares);
  }
  const float scale = 1.0f / std::sqrt(sum_lanes(squares) / static_cast<float>(width) + eps);
  for (int i = 0; i < width; ++i) {
    const float v = x[i] * scale * weight[i];
    y[i] = accumulate ? y[i] + v : v;
  }
}

void rms_norm(Workers& workers, Input in, int width, Output out, bool accumulate) {
  constexpr int kPiece = 16;
  workers.run((in.rows + kPiece - 1) / kPiece, [&](int i, int) {
    const int last = std::min(in.rows, (i + 1) * kPiece);
    for (int r = i * kPiece; r < last; ++r)
      rms_norm_row(in.x + r * in.ld, width, in.norm, in.eps, out.data + r * out.ld, accumulate);
  });
}

}  // namespace sapwood
