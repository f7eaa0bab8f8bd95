#include "linear.h"

#include <algorithm>

#include "formats.h"
#include "tile.h"

namespace sapwood {

namespace {

constexpr int kRowBlock = 96;    // inputs of one piece stay in L2
constexpr int kPanelGroup = 4;   // panels a piece takes

struct Rows {
  const float* x;
  ptrdiff_t ld;
  int count;

  Rows from(int row, int n) const { return {x + row * ld, ld, n}; }
};

Rows normed(Workers& workers, Input in, int width) {
  if (!in.norm) return {in.x, in.ld, in.rows};
  float* y = workers.common(static_cast<size_t>(in.rows) * width);
  rms_norm(workers, in, width, {y, width}, false);
  return {y, width, in.rows};
}

// Up to so many rows, weights are unpacked in registers; beyond it, once into scratch. q4 needs more registers.
int direct_limit(const PackedMatrix& w) {
  const Format f = w.panels()[0].format;
  return f == Format::q4_0 || f == Format::q4_1 ? 3 : 4;
}

// P panels for R rows, weights unpacked in registers.
template <int R, int P, class Reader>
void direct(const Panel* panels, int depth, Rows rows, float (*out)[kTileRows][kPanel]) {
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
void direct_rows(const Panel* panels, int depth, Rows rows, float (*out)[kTileRows][kPanel]) {
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

// Handles panels[0] and, where one row's chain alone would wait for itself, panels[1]; says how many.
int direct_some(const Panel* panels, int left, int depth, Rows rows, float (*out)[kTileRows][kPanel]) {
  const bool registers = rows.count == 1 || (rows.count == 2 && !has_blocks(panels[0].format));
  const bool two = left > 1 && registers && panels[1].format == panels[0].format;
  if (two) direct_rows<2>(panels, depth, rows, out);
  else direct_rows<1>(panels, depth, rows, out);
  return two ? 2 : 1;
}

void tiled_rows(const float* weights, int depth, Rows rows, float (*out)[kPanel]) {
  with_rows(rows.count, [&](auto r) {
    f32x8 lo[r], hi[r];
    tile<r>(rows.x, rows.ld, weights, kPanel, depth, lo, hi);
    for (int i = 0; i < r; ++i) store(out[i], lo[i]), store(out[i] + 8, hi[i]);
  });
}

const float* weights_of(const Panel& panel, int depth, float* scratch) {
  if (panel.format == Format::f32) return reinterpret_cast<const float*>(panel.data);
  unpack_panel(panel, depth, scratch);
  return scratch;
}

void finish(const Panel& panel, int first_row, int rows, const float (*tile_out)[kPanel], Output out, Epilogue e) {
  for (int r = 0; r < rows; ++r) {
    float* row = out.data + (first_row + r) * out.ld + panel.first;
    for (int c = 0; c < panel.width; ++c) {
      float v = tile_out[r][c];
      if (e.bias) v = v + e.bias[panel.first + c];
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

// Splits rows × panels into pieces; body(row block, first panel, last panel, thread).
template <class Body>
void in_pieces(Workers& workers, int rows, int panels, int group, Body body) {
  const int row_blocks = (rows + kRowBlock - 1) / kRowBlock;
  const int groups = (panels + group - 1) / group;
  workers.run(row_blocks * groups, [&](int i, int thread) {
    const int block = i / groups, first = i % groups * group;
    const int row = block * kRowBlock;
    body(row, std::min(kRowBlock, rows - row), first, std::min(panels, first + group), thread);
  });
}

int group_size(bool few_rows) { return few_rows ? 2 * kPanelGroup : kPanelGroup; }

}  // namespace

void linear(Workers& workers, Input in, const PackedMatrix& w, Output out, Epilogue epilogue) {
  const int depth = w.inputs();
  const auto& panels = w.panels();
  const Rows x = normed(workers, in, depth);
  const bool few_rows = x.count <= direct_limit(w);
  in_pieces(workers, x.count, static_cast<int>(panels.size()), group_size(few_rows),
            [&](int row, int count, int first, int last, int thread) {
    float* scratch = workers.scratch(thread, static_cast<size_t>(depth) * kPanel);
    alignas(32) float t[kTileRows][kPanel], few[2][kTileRows][kPanel];
    if (few_rows) {
      for (int p = first, done; p < last; p += done) {
        done = direct_some(&panels[p], last - p, depth, x, few);
        for (int i = 0; i < done; ++i) finish(panels[p + i], 0, x.count, few[i], out, epilogue);
      }
      return;
    }
    for (int p = first; p < last; ++p) {
      const float* weights = weights_of(panels[p], depth, scratch);
      in_tiles(count, [&](int first_row, int n) {
        tiled_rows(weights, depth, x.from(row + first_row, n), t);
        finish(panels[p], row + first_row, n, t, out, epilogue);
      });
    }
  });
}

void gated_linear(Workers& workers, Input in, const PackedMatrix& gate, const PackedMatrix& up, Activation activation,
                  Output out) {
  const int depth = gate.inputs();
  const Rows x = normed(workers, in, depth);
  const bool few_rows = x.count <= direct_limit(gate);
  in_pieces(workers, x.count, static_cast<int>(gate.panels().size()), group_size(few_rows) / 2,
            [&](int row, int count, int first, int last, int thread) {
    const size_t panel_floats = static_cast<size_t>(depth) * kPanel;
    float* scratch = workers.scratch(thread, 2 * panel_floats);
    alignas(32) float g[kTileRows][kPanel], u[kTileRows][kPanel], few[2][kTileRows][kPanel];
    for (int p = first; p < last; ++p) {
      const Panel pair[2] = {gate.panels()[p], up.panels()[p]};
      const Panel &gp = pair[0], &upp = pair[1];
      if (few_rows) {
        if (direct_some(pair, 2, depth, x, few) == 1) direct_some(pair + 1, 1, depth, x, few + 1);
        activated_times(activation, few[0], few[1], x.count, few[0]);
        finish(gp, 0, x.count, few[0], out, {});
        continue;
      }
      const float* gw = weights_of(gp, depth, scratch);
      const float* uw = weights_of(upp, depth, scratch + panel_floats);
      in_tiles(count, [&](int first_row, int n) {
        const Rows some = x.from(row + first_row, n);
        tiled_rows(gw, depth, some, g);
        tiled_rows(uw, depth, some, u);
        activated_times(activation, g, u, n, g);
        finish(gp, row + first_row, n, g, out, {});
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
