// Weights as the kernels hold them, and rows taken from a table.

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <vector>

#include "bindings.h"
#include "embed.h"
#include "float_state.h"
#include "int_kernels.h"

namespace sapwood::bindings {

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

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

const IntKernels& kernels_named(const std::string& name) {
  for (const IntKernels* k : int_kernels())
    if (name == k->name) return *k;
  throw std::invalid_argument("no such variant of integer products on this machine: " + name);
}

// Where the tokens' rows are. Each id is read once: whoever owns them may write others while rows are taken.
std::vector<const uint8_t*> rows_of(const Bytes& table, const Ints& tokens) {
  std::vector<const uint8_t*> found;
  for (size_t i = 0; i < tokens.shape(0); ++i) {
    const int32_t token = tokens.data()[i];
    if (token < 0 || token >= rows(table))
      throw std::invalid_argument("token id outside the vocabulary of " + std::to_string(rows(table)));
    found.push_back(table.data() + static_cast<size_t>(token) * table.shape(1));
  }
  return found;
}

void embed_(const std::string& format, Bytes table, Ints tokens, float scale, Matrix out) {
  const Format f = format_named(format);
  const int width = cols(out);
  require(out.shape(0) == tokens.shape(0) && table.shape(1) == row_bytes(f, width) && whole_blocks(f, width),
          "embed: shapes do not fit");
  const std::vector<const uint8_t*> found = rows_of(table, tokens);
  const ptrdiff_t step = stride(out);
  nb::gil_scoped_release unlocked;
  const FloatState exact;
  float* to = out.data();
  for (const uint8_t* row : found) {
    embed(f, row, width, scale, to);
    to += step;
  }
}

}  // namespace

void bind_weights(nb::module_& m) {
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
  m.def("embed", &embed_, "format"_a, "table"_a.noconvert(), "tokens"_a.noconvert(), "scale"_a, "out"_a.noconvert());
}

}  // namespace sapwood::bindings
