// The ops of a layer, done at once or recorded.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "bind_step.h"
#include "linear.h"

namespace sapwood::bindings {

namespace {

using ConstMatrix = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;
using ConstTable = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

Activation activation_named(const std::string& name) {
  if (name == "silu") return Activation::silu;
  if (name == "gelu_tanh") return Activation::gelu_tanh;
  throw std::invalid_argument("unknown activation: " + name);
}

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

}  // namespace

void bind_ops(nb::module_& m) {
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
}

}  // namespace sapwood::bindings
