// A block of 32 values as files hold it (GGUF): a scale in f16, for q4_1 a minimum in f16, then the quants.
#pragma once

#include "packed.h"

namespace sapwood {

// f16 before the quants.
inline int heads_of(Format f) { return f == Format::q4_1 ? 2 : 1; }

inline size_t block_bytes(Format f) {
  return static_cast<size_t>(2 * heads_of(f) + (f == Format::q8_0 ? kBlock : kBlock / 2));
}

// Byte j holds values j (low) and j + 16 (high).
inline uint8_t nibble(const uint8_t* quants, int k) { return k < 16 ? quants[k] & 15 : quants[k - 16] >> 4; }

}  // namespace sapwood
