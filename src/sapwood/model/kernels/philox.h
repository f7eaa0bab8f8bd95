// Philox4x64-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011): a number from a key and a counter.
#pragma once

#include <cstdint>

namespace sapwood {

// In [0, 1), 53 bits: the first number of numpy's Philox with key (seed, sample) and counter (0, 0, 0, position), which
// counts before it draws.
inline double uniform(uint64_t seed, uint64_t sample, uint64_t position) {
  uint64_t c0 = 1, c1 = 0, c2 = 0, c3 = position;
  for (int round = 0; round < 10; ++round) {
    const unsigned __int128 a = static_cast<unsigned __int128>(c0) * 0xD2E7470EE14C6C93u;
    const unsigned __int128 b = static_cast<unsigned __int128>(c2) * 0xCA5A826395121157u;
    c0 = static_cast<uint64_t>(b >> 64) ^ c1 ^ seed;
    c2 = static_cast<uint64_t>(a >> 64) ^ c3 ^ sample;
    c1 = static_cast<uint64_t>(b);
    c3 = static_cast<uint64_t>(a);
    seed += 0x9E3779B97F4A7C15u;
    sample += 0xBB67AE8584CAA73Bu;
  }
  return static_cast<double>(c0 >> 11) * 0x1p-53;
}

}  // namespace sapwood
