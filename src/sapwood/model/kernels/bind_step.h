// A step as Python hands it over: its sequences, the pages they lie in, and the calls that were recorded for it.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "attention.h"
#include "bindings.h"
#include "program.h"
#include "trunks.h"

namespace sapwood::bindings {

using Pages = nb::ndarray<nb::ndim<4>, nb::c_contig, nb::device::cpu>;

// One layer's K and V pages; keeps the arrays alive.
struct LayerPages {
  LayerPages(Pages k, Pages v, const std::string& type);
  int count() const { return static_cast<int>(k_.shape(0)); }
  bool fits(HeadShape s) const;
  KvLayer view;

 private:
  Pages k_, v_;
};

// The sequences of one step. Tables lie one after another in `pages`.
struct Spans {
  Spans(Ints rows_of, Ints starts, Ints pages, int page_size, int capacity, bool trunks);
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
  void run(Workers& workers, const Spans& spans) const;
  Program<Spans> program;
  Spans like;
  int positions = std::numeric_limits<int>::max();  // in the shortest of its rope tables
};

}  // namespace sapwood::bindings
