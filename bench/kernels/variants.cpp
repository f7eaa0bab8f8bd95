// Prints a hash of what the linear kernels give for fixed inputs, to compare builds for different machines; tests/bench/test_variants.py
// does so for two (the variants chosen at run time are compared by the tests of the ops). By hand:
//
//   K=src/sapwood/model/kernels; F="-std=c++17 -O3 -ffp-contract=off -fno-math-errno -Wno-psabi -pthread -I$K"
//   S="bench/kernels/variants.cpp $K/linear.cpp $K/packed.cpp $K/arena.cpp $K/workers.cpp $K/int_rows.cpp
//      $K/int_kernels.cpp"
//   g++ $F -mavx2 -mfma -mf16c $S -o variants && ./variants
//   g++ $F $S -o variants && ./variants
//   aarch64-linux-gnu-g++ -static $F $S -o variants && qemu-aarch64-static ./variants
#include <cstdio>
#include <cstring>
#include <vector>

#include "int_kernels.h"
#include "linear.h"

using namespace sapwood;

namespace {

struct Numbers {
  uint64_t state = 88172645463325252u;
  uint32_t next() {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return static_cast<uint32_t>(state >> 32);
  }
  float real() { return (static_cast<float>(next() >> 8) - 8388608.0f) / 4194304.0f; }
};

std::vector<float> reals(Numbers& numbers, size_t count) {
  std::vector<float> all(count);
  for (float& x : all) x = numbers.real();
  return all;
}

// Rows as a file holds them; scales of blocks are small finite halves.
std::vector<uint8_t> rows_of(Numbers& numbers, Format format, int rows, int inputs) {
  std::vector<uint8_t> bytes(row_bytes(format, inputs) * static_cast<size_t>(rows));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(numbers.next());
  const size_t size = format == Format::f32 ? 4 : has_blocks(format) ? row_bytes(format, kBlock) : 2;
  const size_t heads = format == Format::q4_1 ? 2 : 1;
  for (size_t at = 0; at < bytes.size(); at += size)
    for (size_t h = 0; h < heads; ++h) {
      const float small = numbers.real() / 16;
      const uint16_t half = static_cast<uint16_t>(0x2000 | (numbers.next() & 0x8fff));  // 2^-7 to 2^-3, either sign
      if (format == Format::f32) std::memcpy(&bytes[at], &small, 4);
      else std::memcpy(&bytes[at + 2 * h], &half, 2);
    }
  return bytes;
}

uint64_t hash(uint64_t h, const std::vector<float>& values) {
  for (float value : values) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    h = (h ^ bits) * 1099511628211u;
  }
  return h;
}

uint64_t run(Workers& workers, Format format, Compute compute) {
  constexpr int kInputs = 224, kOutputs = 75, kMost = 40;
  Numbers numbers;
  auto arena = std::make_shared<Arena>();
  PackedMatrix gate(kInputs, compute, arena, *int_kernels()[0]), up(kInputs, compute, arena, *int_kernels()[0]);
  for (PackedMatrix* w : {&gate, &up})
    w->append(format, rows_of(numbers, format, kOutputs, kInputs).data(), kOutputs, row_bytes(format, kInputs));
  const std::vector<float> x = reals(numbers, kMost * kInputs);
  const std::vector<float> norm = reals(numbers, kInputs), bias = reals(numbers, kOutputs);
  uint64_t h = 14695981039346656037u;
  for (int rows : {1, 2, 3, 5, 8, 13, kMost}) {
    std::vector<float> out(static_cast<size_t>(rows) * kOutputs, 0.5f);
    linear(workers, {x.data(), rows, kInputs}, gate, {out.data(), kOutputs}, {bias.data(), true});
    h = hash(h, out);
    gated_linear(workers, {x.data(), rows, kInputs, norm.data(), 1e-5f}, gate, up, Activation::silu, {out.data(), kOutputs});
    h = hash(h, out);
  }
  return h;
}

}  // namespace

int main() {
  Workers workers(2);
  const char* names[] = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"}, *ways[] = {"f32", "integer", "int8"};
  for (int f = 0; f < 6; ++f)
    for (int c = 0; c < 3; ++c)
      std::printf("%-5s %-8s %016llx\n", names[f], ways[c],
                  static_cast<unsigned long long>(run(workers, static_cast<Format>(f), static_cast<Compute>(c))));
}
