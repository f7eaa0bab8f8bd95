// What Python sees of the kernels. Shapes are checked here once; the kernels below trust them. Every call that
// computes releases the GIL.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "attention.h"
#include "draw.h"
#include "embed.h"
#include "int_kernels.h"
#include "kv_tile.h"
#include "linear.h"
#include "philox.h"
#include "program.h"
#include "simd.h"
#include "trunks.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace sapwood;

namespace {

using Matrix = nb::ndarray<float, nb::ndim<2>, nb::device::cpu>;
using ConstMatrix = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;
using ConstVector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstTable = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Ints = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutInts = nb::ndarray<int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutTable = nb::ndarray<int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OutBools = nb::ndarray<bool, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutDoubles = nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Pages = nb::ndarray<nb::ndim<4>, nb::c_contig, nb::device::cpu>;

void require(bool ok, const char* what) {
  if (!ok) throw std::invalid_argument(what);
}

template <class M>
int rows(const M& m) { return static_cast<int>(m.shape(0)); }
template <class M>
int cols(const M& m) { return static_cast<int>(m.shape(1)); }

template <class M>
ptrdiff_t stride(const M& m) {
  require(m.shape(1) == 1 || m.stride(1) == 1, "rows must be contiguous");
  return static_cast<ptrdiff_t>(m.stride(0));
}

Format format_named(const std::string& name) {
  if (name == "f32") return Format::f32;
  if (name == "f16") return Format::f16;
  if (name == "bf16") return Format::bf16;
  if (name == "q8_0") return Format::q8_0;
  if (name == "q4_0") return Format::q4_0;
  if (name == "q4_1") return Format::q4_1;
  throw std::invalid_argument("unknown weight format: " + name);
}

Compute compute_named(const std::string& name) {
  if (name == "f32") return Compute::f32;
  if (name == "integer") return Compute::integer;
  if (name == "int8") return Compute::int8;
  throw std::invalid_argument("unknown way to compute: " + name);
}

KvType kv_named(const std::string& name) {
  if (name == "f16") return KvType::f16;
  if (name == "bf16") return KvType::bf16;
  if (name == "f32") return KvType::f32;
  if (name == "q8") return KvType::q8;
  throw std::invalid_argument("unknown KV type: " + name);
}

Activation activation_named(const std::string& name) {
  if (name == "silu") return Activation::silu;
  if (name == "gelu_tanh") return Activation::gelu_tanh;
  throw std::invalid_argument("unknown activation: " + name);
}

const IntKernels& kernels_named(const std::string& name) {
  for (const IntKernels* k : int_kernels())
    if (name == k->name) return *k;
  throw std::invalid_argument("no such variant of integer products on this machine: " + name);
}

// One layer's K and V pages; keeps the arrays alive.
struct LayerPages {
  LayerPages(Pages k, Pages v, const std::string& type) : k_(k), v_(v) {
    const KvType t = kv_named(type);
    const size_t item = t == KvType::f32 ? 4 : t == KvType::q8 ? 1 : 2;
    require(k.itemsize() == item && v.itemsize() == item, "KV pages of another type");
    for (size_t i = 0; i < 4; ++i) require(k.shape(i) == v.shape(i), "K and V pages differ in shape");
    view = {k_.data(), v_.data(), t, static_cast<int>(k.shape(1))};
  }
  int count() const { return static_cast<int>(k_.shape(0)); }
  bool fits(HeadShape s) const {
    return static_cast<int>(k_.shape(2)) == s.kv_heads &&
           static_cast<int>(k_.shape(3) * k_.itemsize()) == row_bytes(view.type, s.head_dim);
  }
  KvLayer view;

 private:
  Pages k_, v_;
};

// The sequences of one step. Tables lie one after another in `pages`.
struct Spans {
  Spans(Ints rows_of, Ints starts, Ints pages, int page_size, int capacity, bool trunks) : pages_(pages) {
    require(rows_of.shape(0) == starts.shape(0), "one start per span");
    require(page_size > 0, "page size must be positive");
    size_t table = 0;
    for (size_t i = 0; i < rows_of.shape(0); ++i) {
      const int n = rows_of.data()[i], start = starts.data()[i];
      require(n > 0 && start >= 0, "a span needs at least one row");
      list.push_back({total, n, start, pages.data() + table});
      total += n;
      longest = start + n > longest ? start + n : longest;
      table += static_cast<size_t>((start + n + page_size - 1) / page_size);
    }
    require(table == pages.shape(0), "page tables do not cover the spans");
    for (size_t i = 0; i < table; ++i)
      require(pages.data()[i] >= 0 && pages.data()[i] < capacity, "page id outside the pool");
    size = page_size, capacity_ = capacity;
    stretches = stretches_of(list, page_size, trunks);
  }
  void match(const LayerPages& layer) const {
    require(layer.view.page_size == size && layer.count() >= capacity_, "spans of another pool");
  }
  // Whether what was checked for `other` holds for these: as many rows, of the same pool, within the rope tables.
  void stand_in_for(const Spans& other, int positions) const {
    require(total == other.total && size == other.size && capacity_ == other.capacity_, "spans of another program");
    require(longest <= positions, "rope_and_store: position beyond the rope table");
  }
  std::vector<Span> list;
  std::vector<Stretch> stretches;
  int total = 0, longest = 0, size = 0;

 private:
  Ints pages_;
  int capacity_ = 0;
};

// A program and the spans that it was recorded for; keeps alive whatever its calls touch.
struct Recording {
  explicit Recording(const Spans& spans) : like(spans) {}
  void run(Workers& workers, const Spans& spans) const {
    spans.stand_in_for(like, positions);
    nb::gil_scoped_release unlocked;
    const auto turn = workers.turn();
    program.run(workers, spans);
  }
  Program<Spans> program;
  Spans like;
  int positions = std::numeric_limits<int>::max();  // in the shortest of its rope tables
};

// Does a call, or adds it to a recording with what it must keep alive. It takes no Python object apart: a recorded
// call runs without the interpreter.
template <class Call, class... Kept>
void perform(Workers& workers, Recording* recording, const Spans* spans, Call call, const Kept&... kept) {
  if (recording) {
    auto keep = std::make_shared<std::tuple<Kept...>>(kept...);
    recording->program.add([call, keep](Workers& w, const Spans& s) { call(w, &s); });
    return;
  }
  nb::gil_scoped_release unlocked;
  const auto turn = workers.turn();
  call(workers, spans);
}

const float* optional(const std::optional<ConstVector>& v, int width, const char* what) {
  if (!v) return nullptr;
  require(static_cast<int>(v->shape(0)) == width, what);
  return v->data();
}

Input input(ConstMatrix x, const std::optional<ConstVector>& norm, float eps) {
  return {x.data(), rows(x), stride(x), optional(norm, cols(x), "norm of another width"), eps};
}

Output output(Matrix out) { return {out.data(), stride(out)}; }

void linear_(Workers& workers, ConstMatrix x, const PackedMatrix& w, Matrix out, std::optional<ConstVector> norm,
             float eps, std::optional<ConstVector> bias, bool accumulate, Recording* recording) {
  require(w.outputs() > 0 && cols(x) == w.inputs() && cols(out) == w.outputs() && rows(x) == rows(out),
          "linear: shapes do not fit");
  const Epilogue e{optional(bias, w.outputs(), "linear: bias of another width"), accumulate};
  const Input in = input(x, norm, eps);
  const Output to = output(out);
  perform(workers, recording, nullptr, [in, &w, to, e](Workers& t, const Spans*) { linear(t, in, w, to, e); },
          x, nb::find(w), out, norm, bias);
}

// Whether each panel of one covers the outputs of the other's.
bool paired(const PackedMatrix& a, const PackedMatrix& b) {
  const auto same = [](const Panel& p, const Panel& q) { return p.first == q.first && p.width == q.width; };
  return std::equal(a.panels().begin(), a.panels().end(), b.panels().begin(), b.panels().end(), same);
}

void gated_linear_(Workers& workers, ConstMatrix x, const PackedMatrix& gate, const PackedMatrix& up, Matrix out,
                   std::optional<ConstVector> norm, float eps, const std::string& activation, Recording* recording) {
  require(gate.outputs() > 0 && cols(x) == gate.inputs() && gate.inputs() == up.inputs() && paired(gate, up) &&
              cols(out) == gate.outputs() && rows(x) == rows(out),
          "gated_linear: shapes do not fit");
  const Input in = input(x, norm, eps);
  const Output to = output(out);
  const Activation named = activation_named(activation);
  perform(workers, recording, nullptr,
          [in, &gate, &up, named, to](Workers& t, const Spans*) { gated_linear(t, in, gate, up, named, to); },
          x, nb::find(gate), nb::find(up), out, norm);
}

void rms_norm_(Workers& workers, ConstMatrix x, ConstVector weight, float eps, Matrix out, bool accumulate,
               Recording* recording) {
  require(rows(x) == rows(out) && cols(x) == cols(out), "rms_norm: shapes do not fit");
  const Input in = input(x, weight, eps);
  const Output to = output(out);
  const int width = cols(x);
  perform(workers, recording, nullptr,
          [in, width, to, accumulate](Workers& t, const Spans*) { rms_norm(t, in, width, to, accumulate); },
          x, weight, out);
}

int width(HeadShape s) { return (s.heads + 2 * s.kv_heads) * s.head_dim; }

void rope_and_store_(Workers& workers, const Spans& spans, Matrix qkv, HeadShape shape, ConstTable cos, ConstTable sin,
                     const LayerPages& layer, std::optional<ConstVector> q_norm, std::optional<ConstVector> k_norm,
                     float eps, Recording* recording) {
  const int half = cols(cos);
  require(rows(qkv) == spans.total && cols(qkv) == width(shape) && stride(qkv) == width(shape) && layer.fits(shape),
          "rope_and_store: shapes do not fit");
  require(cols(sin) == half && 2 * half <= shape.head_dim, "rope_and_store: rotation wider than a head");
  require(rows(cos) >= spans.longest && rows(sin) >= spans.longest, "rope_and_store: position beyond the rope table");
  spans.match(layer);
  const HeadNorms norms{optional(q_norm, shape.head_dim, "q_norm of another width"),
                        optional(k_norm, shape.head_dim, "k_norm of another width"), eps};
  if (recording) recording->positions = std::min({recording->positions, rows(cos), rows(sin)});
  float* const values = qkv.data();
  const RopeTable rope{cos.data(), sin.data(), 2 * half};
  perform(workers, recording, &spans,
          [values, shape, rope, norms, view = layer.view](Workers& t, const Spans* s) {
            rope_and_store(t, s->list, values, shape, rope, norms, view);
          },
          qkv, cos, sin, nb::find(layer), q_norm, k_norm);
}

void attention_(Workers& workers, const Spans& spans, ConstMatrix qkv, HeadShape shape, float scale, int window,
                const LayerPages& layer, Matrix out, Recording* recording) {
  require(rows(qkv) == spans.total && cols(qkv) == width(shape) && stride(qkv) == width(shape) && layer.fits(shape) &&
              rows(out) == spans.total && cols(out) == shape.heads * shape.head_dim && stride(out) == cols(out),
          "attention: shapes do not fit");
  require(window >= 0, "attention: window must not be negative");
  spans.match(layer);
  const float* const values = qkv.data();
  float* const to = out.data();
  perform(workers, recording, &spans,
          [values, shape, scale, window, view = layer.view, to](Workers& t, const Spans* s) {
            attention(t, s->list, s->stretches, values, shape, scale, window, view, to);
          },
          qkv, nb::find(layer), out);
}

void embed_(const std::string& format, Bytes table, Ints tokens, float scale, Matrix out) {
  const Format f = format_named(format);
  const int width = cols(out), count = static_cast<int>(tokens.shape(0));
  require(rows(out) == count && table.shape(1) == row_bytes(f, width), "embed: shapes do not fit");
  const std::string outside = "token id outside the vocabulary of " + std::to_string(rows(table));
  for (int i = 0; i < count; ++i)
    require(tokens.data()[i] >= 0 && tokens.data()[i] < rows(table), outside.c_str());
  const ptrdiff_t step = stride(out);
  nb::gil_scoped_release unlocked;
  for (int i = 0; i < count; ++i) {
    const uint8_t* row = table.data() + static_cast<size_t>(tokens.data()[i]) * table.shape(1);
    embed(f, row, width, scale, out.data() + i * step);
  }
}

// Rows of logits of one vocabulary, each an array of its own.
std::vector<const float*> logits_of(const std::vector<ConstVector>& rows) {
  std::vector<const float*> list;
  for (const ConstVector& row : rows) {
    require(row.shape(0) > 0 && row.shape(0) == rows[0].shape(0), "rows of logits of one width, not empty");
    list.push_back(row.data());
  }
  return list;
}

void pick_(Workers& workers, const std::vector<ConstVector>& rows, const std::vector<Draw>& draws, OutInts tokens,
           OutBools finite) {
  const std::vector<const float*> logits = logits_of(rows);
  require(draws.size() == rows.size() && tokens.shape(0) == rows.size() && finite.shape(0) == rows.size(),
          "pick: one draw, token and finiteness for each row");
  if (rows.empty()) return;
  const int width = static_cast<int>(rows[0].shape(0));
  nb::gil_scoped_release unlocked;
  const auto turn = workers.turn();
  workers.run(static_cast<int>(logits.size()), [&](int i, int) {
    const size_t at = static_cast<size_t>(i);
    const Picked picked = pick(logits[at], width, draws[at]);
    tokens.data()[i] = picked.token;
    finite.data()[i] = picked.finite;
  });
}

void rank_(Workers& workers, const std::vector<ConstVector>& rows, OutTable tokens, OutDoubles peaks,
           OutDoubles weights, OutBools finite) {
  const std::vector<const float*> logits = logits_of(rows);
  require(tokens.shape(0) == rows.size() && peaks.shape(0) == rows.size() && weights.shape(0) == rows.size() &&
              finite.shape(0) == rows.size(),
          "rank: one place for each row");
  if (rows.empty()) return;
  const int width = static_cast<int>(rows[0].shape(0)), top = static_cast<int>(tokens.shape(1));
  require(top <= width, "rank: more tokens than there are");
  nb::gil_scoped_release unlocked;
  const auto turn = workers.turn();
  workers.run(static_cast<int>(logits.size()), [&](int i, int) {
    const Ranked ranked = rank(logits[static_cast<size_t>(i)], width, top, tokens.data() + i * top);
    peaks.data()[i] = ranked.peak;
    weights.data()[i] = ranked.weight;
    finite.data()[i] = ranked.finite;
  });
}

}  // namespace

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // a process may end while a thread still loads a model
  m.doc() = "The exact CPU kernels: every output element is one chain of fused multiply-adds in ascending k.";
#ifdef SAPWOOD_AVX2
  m.attr("variant") = "avx2";
#else
  m.attr("variant") = "generic";
#endif
  std::vector<std::string> variants;
  for (const IntKernels* k : int_kernels()) variants.push_back(k->name);
  m.attr("integer_variants") = nb::tuple(nb::cast(variants));
  nb::class_<Workers>(m, "Workers")
      .def(nb::init<int>(), "threads"_a, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("threads", &Workers::threads)
      .def_prop_ro("scratch_bytes", &Workers::scratch_bytes);
  nb::class_<Arena>(m, "Arena").def(nb::init<>());
  nb::class_<PackedMatrix>(m, "PackedMatrix")
      .def("__init__", [](PackedMatrix* w, int inputs, const std::string& compute, std::shared_ptr<Arena> arena,
                          const std::string& variant) {
        new (w) PackedMatrix(inputs, compute_named(compute), std::move(arena), kernels_named(variant));
      }, "inputs"_a, "compute"_a, "arena"_a, "variant"_a)
      .def("append", [](PackedMatrix& w, const std::string& format, Bytes data) {
        const Format f = format_named(format);
        nb::gil_scoped_release unlocked;
        w.append(f, data.data(), rows(data), data.shape(1));
      }, "format"_a, "rows"_a.noconvert())
      .def_prop_ro("inputs", &PackedMatrix::inputs)
      .def_prop_ro("outputs", &PackedMatrix::outputs)
      .def_prop_ro("nbytes", &PackedMatrix::bytes);
  nb::class_<HeadShape>(m, "HeadShape").def("__init__", [](HeadShape* s, int heads, int kv_heads, int head_dim) {
    require(heads > 0 && kv_heads > 0 && head_dim > 0 && heads % kv_heads == 0, "heads must be a multiple of kv_heads");
    new (s) HeadShape{heads, kv_heads, head_dim};
  }, "heads"_a, "kv_heads"_a, "head_dim"_a);
  nb::class_<LayerPages>(m, "LayerPages")
      .def(nb::init<Pages, Pages, const std::string&>(), "k"_a.noconvert(), "v"_a.noconvert(), "type"_a);
  nb::class_<Spans>(m, "Spans")
      .def(nb::init<Ints, Ints, Ints, int, int, bool>(), "rows"_a.noconvert(), "starts"_a.noconvert(),
           "pages"_a.noconvert(), "page_size"_a, "capacity"_a, "trunks"_a);
  nb::class_<Recording>(m, "Recording")
      .def(nb::init<const Spans&>(), "spans"_a)
      .def("run", &Recording::run, "workers"_a, "spans"_a)
      .def("__len__", [](const Recording& r) { return r.program.size(); });
  m.def("linear", &linear_, "workers"_a, "x"_a.noconvert(), "w"_a, "out"_a.noconvert(), "norm"_a.noconvert().none(),
        "eps"_a, "bias"_a.noconvert().none(), "accumulate"_a, "recording"_a.none() = nb::none());
  m.def("gated_linear", &gated_linear_, "workers"_a, "x"_a.noconvert(), "gate"_a, "up"_a, "out"_a.noconvert(),
        "norm"_a.noconvert().none(), "eps"_a, "activation"_a, "recording"_a.none() = nb::none());
  m.def("rms_norm", &rms_norm_, "workers"_a, "x"_a.noconvert(), "weight"_a.noconvert(), "eps"_a,
        "out"_a.noconvert(), "accumulate"_a, "recording"_a.none() = nb::none());
  m.def("rope_and_store", &rope_and_store_, "workers"_a, "spans"_a, "qkv"_a.noconvert(), "shape"_a, "cos"_a.noconvert(),
        "sin"_a.noconvert(), "layer"_a, "q_norm"_a.noconvert().none(), "k_norm"_a.noconvert().none(), "eps"_a,
        "recording"_a.none() = nb::none());
  m.def("attention", &attention_, "workers"_a, "spans"_a, "qkv"_a.noconvert(), "shape"_a, "scale"_a, "window"_a,
        "layer"_a, "out"_a.noconvert(), "recording"_a.none() = nb::none());
  nb::class_<Draw>(m, "Draw").def("__init__", [](Draw* d, double temperature, int top_k, double top_p, double min_p,
                                                 double number) {
    require(temperature >= 0 && top_k >= 0, "temperature and top_k must not be negative");
    require(top_p > 0 && min_p <= 1 && number >= 0 && number < 1, "top_p, min_p or number out of range");
    new (d) Draw{temperature, top_k, top_p, min_p, number};
  }, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a, "number"_a);
  m.def("embed", &embed_, "format"_a, "table"_a.noconvert(), "tokens"_a.noconvert(), "scale"_a, "out"_a.noconvert());
  m.def("uniform", &uniform, "seed"_a, "sample"_a, "position"_a);
  m.def("pick", &pick_, "workers"_a, "rows"_a, "draws"_a, "tokens"_a.noconvert(), "finite"_a.noconvert());
  m.def("rank", &rank_, "workers"_a, "rows"_a, "tokens"_a.noconvert(), "peaks"_a.noconvert(), "weights"_a.noconvert(),
        "finite"_a.noconvert());
}
