#include "packed.h"

#include <cstring>
#include <stdexcept>

#include "file_block.h"
#include "formats.h"

namespace sapwood {

namespace {

void pack_plain(uint8_t* panel, const uint8_t* row, int lane, int inputs, size_t element) {
  for (int k = 0; k < inputs; ++k)
    std::memcpy(panel + (static_cast<size_t>(k) * kPanel + lane) * element, row + k * element, element);
}

void put_quants(uint8_t* out, const uint8_t* qs, int lane, Format f) {
  for (int k = 0; k < kBlock; ++k) {
    if (f == Format::q8_0) out[k * kPanel + lane] = qs[k];
    else out[k / 2 * kPanel + lane] |= static_cast<uint8_t>(nibble(qs, k) << 4 * (k % 2));
  }
}

void put_nibbles_by_four(uint8_t* out, const uint8_t* qs, int lane) {
  for (int k = 0; k < kBlock; ++k)
    out[(k / 8 * kPanel + lane) * 4 + k % 4] |= static_cast<uint8_t>(nibble(qs, k) << 4 * (k % 8 / 4));
}

void put_paired_quants(uint8_t* out, const uint8_t* qs, int lane, Format f) {
  for (int k = 0; k < kBlock; ++k) {
    if (f == Format::q8_0) {
      out[(k / 2 * kPanel + lane) * 2 + k % 2] = qs[k];
      continue;
    }
    const uint8_t n = f == Format::q4_0 ? nibble(qs, k) ^ 8 : nibble(qs, k);
    const int i = k % 8 / 2, byte = ((k / 8 * kPanel + lane) * 2 + k % 2) * 2 + i / 2;
    out[byte] |= static_cast<uint8_t>(n << 4 * (i % 2));
  }
}

void pack_blocks(uint8_t* panel, const uint8_t* row, int lane, int inputs, Format f, Compute compute) {
  const size_t packed_block = panel_bytes(f, kBlock);
  const int heads = heads_of(f);
  for (int b = 0; b < inputs / kBlock; ++b) {
    const uint8_t* src = row + static_cast<size_t>(b) * block_bytes(f);
    uint8_t* dst = panel + static_cast<size_t>(b) * packed_block;
    for (int h = 0; h < heads; ++h) std::memcpy(dst + h * 32 + lane * 2, src + h * 2, 2);
    const uint8_t* qs = src + heads * 2;
    uint8_t* out = dst + heads * 32;
    if (compute == Compute::int8) put_nibbles_by_four(out, qs, lane);
    else if (compute == Compute::integer) put_paired_quants(out, qs, lane, f);
    else put_quants(out, qs, lane, f);
  }
}

}  // namespace

size_t row_bytes(Format f, int inputs) {
  switch (f) {
    case Format::f32: return static_cast<size_t>(inputs) * 4;
    case Format::f16:
    case Format::bf16: return static_cast<size_t>(inputs) * 2;
    default: return static_cast<size_t>(inputs / kBlock) * block_bytes(f);
  }
}

size_t panel_bytes(Format f, int inputs) { return row_bytes(f, inputs) * kPanel; }

void PackedMatrix::append(Format format, const uint8_t* data, int rows, size_t bytes_per_row) {
  const bool blocks = has_blocks(format);
  const bool wide = compute_ == Compute::int8 && format == Format::q8_0;
  const Compute compute = !blocks ? Compute::f32 : wide ? Compute::integer : compute_;
  if (!whole_blocks(format, inputs_)) throw std::invalid_argument("quantised rows need a multiple of 32 inputs");
  if (bytes_per_row != row_bytes(format, inputs_)) throw std::invalid_argument("row size does not fit the format");
  const int count = (rows + kPanel - 1) / kPanel;
  const size_t size = panel_bytes(format, inputs_);
  uint8_t* base = arena_->take(size * static_cast<size_t>(count));
  for (int p = 0; p < count; ++p) {
    uint8_t* panel = base + size * static_cast<size_t>(p);
    std::memset(panel, 0, size);
    const int width = rows - p * kPanel < kPanel ? rows - p * kPanel : kPanel;
    for (int lane = 0; lane < width; ++lane) {
      const uint8_t* row = data + static_cast<size_t>(p * kPanel + lane) * bytes_per_row;
      if (blocks) pack_blocks(panel, row, lane, inputs_, format, compute);
      else pack_plain(panel, row, lane, inputs_, format == Format::f32 ? 4 : 2);
    }
    panels_.push_back({panel, format, outputs_ + p * kPanel, width, compute});
  }
  outputs_ += rows;
  uses_[static_cast<int>(compute)] = true;
  bytes_ += size * static_cast<size_t>(count);
}

void unpack_panel(const Panel& panel, int inputs, float* out) {
  with_format(panel.format, [&](auto reader) {
    const uint8_t* const one[1] = {panel.data};
    walk<decltype(reader)>(one, inputs, [&](int k, int, int half, f32x8 w) __attribute__((always_inline)) {
      store(out + k * kPanel + half * kLanes, w);
    });
  });
}

}  // namespace sapwood
