#include "bind_step.h"

#include <nanobind/stl/string.h>

#include "kv_tile.h"

namespace sapwood::bindings {

namespace {

KvType kv_named(const std::string& name) {
  if (name == "f16") return KvType::f16;
  if (name == "bf16") return KvType::bf16;
  if (name == "f32") return KvType::f32;
  if (name == "q8") return KvType::q8;
  throw std::invalid_argument("unknown KV type: " + name);
}

HeadShape head_shape(int heads, int kv_heads, int head_dim) {
  require(heads > 0 && kv_heads > 0 && head_dim > 0 && heads % kv_heads == 0, "heads must be a multiple of kv_heads");
  return {heads, kv_heads, head_dim};
}

}  // namespace

LayerPages::LayerPages(Pages k, Pages v, const std::string& type) : k_(k), v_(v) {
  const KvType t = kv_named(type);
  const size_t item = t == KvType::f32 ? 4 : t == KvType::q8 ? 1 : 2;
  require(k.itemsize() == item && v.itemsize() == item, "KV pages of another type");
  for (size_t i = 0; i < 4; ++i) require(k.shape(i) == v.shape(i), "K and V pages differ in shape");
  view = {k_.data(), v_.data(), t, static_cast<int>(k.shape(1))};
}

bool LayerPages::fits(HeadShape s) const {
  return static_cast<int>(k_.shape(2)) == s.kv_heads &&
         static_cast<int>(k_.shape(3) * k_.itemsize()) == row_bytes(view.type, s.head_dim);
}

Spans::Spans(Ints rows_of, Ints starts, Ints pages, int page_size, int capacity, bool trunks) : pages_(pages) {
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

void Recording::run(Workers& workers, const Spans& spans) const {
  spans.stand_in_for(like, positions);
  nb::gil_scoped_release unlocked;
  const auto turn = workers.turn();
  program.run(workers, spans);
}

void bind_step(nb::module_& m) {
  nb::class_<Workers>(m, "Workers")
      .def(nb::init<int>(), "threads"_a, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("threads", &Workers::threads)
      .def_prop_ro("scratch_bytes", &Workers::scratch_bytes);
  nb::class_<HeadShape>(m, "HeadShape").def("__init__", [](HeadShape* s, int heads, int kv_heads, int head_dim) {
    new (s) HeadShape(head_shape(heads, kv_heads, head_dim));
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
}

}  // namespace sapwood::bindings
