#include "ranking.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "weights.h"

namespace sapwood {

namespace {

constexpr size_t kFewest = 32;       // of a tier
constexpr size_t kGrowth = 8;        // from tier to tier
constexpr size_t kRadixFrom = 1024;  // keys; fewer are sorted faster by comparing

float largest(f32x8 v) {
  f32x4 halves[2];
  std::memcpy(halves, &v, sizeof v);
  const f32x4 m = halves[0] > halves[1] ? halves[0] : halves[1];
  return std::max(std::max(m[0], m[2]), std::max(m[1], m[3]));
}

// The largest of each 8 neighbours.
std::vector<float> fine_maxima(const float* row, int n) {
  std::vector<float> maxima;
  maxima.reserve(static_cast<size_t>(n / 8 + 1));
  int i = 0;
  for (; i + 8 <= n; i += 8) maxima.push_back(largest(load(row + i)));
  if (i < n) maxima.push_back(*std::max_element(row + i, row + n));
  return maxima;
}

// Ascending as the logit descends; both zeros are one.
uint64_t key(float logit, int token) {
  const float x = logit + 0.0f;
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t ascending = bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
  return static_cast<uint64_t>(~ascending) << 32 | static_cast<uint32_t>(token);
}

// By one byte of the keys, stable; leaves them as they are where it is the same in all.
void sort_by_byte(std::vector<uint64_t>& keys, std::vector<uint64_t>& spare, int shift) {
  std::array<size_t, 257> start{};
  for (uint64_t k : keys) ++start[((k >> shift) & 255) + 1];
  if (*std::max_element(start.begin(), start.end()) == keys.size()) return;
  for (size_t i = 1; i < start.size(); ++i) start[i] += start[i - 1];
  for (uint64_t k : keys) spare[start[(k >> shift) & 255]++] = k;
  keys.swap(spare);
}

}  // namespace

Survey::Survey(const float* row, int n) : logits(row), count(n) {
  maxima.reserve(static_cast<size_t>((n + kSummed - 1) / kSummed));
  f32x8 broken = splat(0.0f);  // a value that is not finite, times zero, is not zero
  int i = 0;
  for (; i + kSummed <= n; i += kSummed) {
    f32x8 most = load(row + i);
    broken += most * 0.0f;
    for (int j = 8; j < kSummed; j += 8) {
      const f32x8 v = load(row + i + j);
      broken += v * 0.0f;
      most = max(v, most);
    }
    maxima.push_back(largest(most));
  }
  finite = sum_lanes(broken) == 0;
  if (i < n) maxima.push_back(row[i]);
  for (; i < n; ++i) {
    finite = finite && std::isfinite(row[i]);
    maxima.back() = std::max(maxima.back(), row[i]);
  }
  peak = *std::max_element(maxima.begin(), maxima.end());
  const auto bad = [](float x) { return std::isnan(x) || x == std::numeric_limits<float>::infinity(); };
  usable = finite || std::none_of(row, row + n, bad);
}

int Survey::first_peak() const {
  const auto block = std::find(maxima.begin(), maxima.end(), peak) - maxima.begin();
  return static_cast<int>(std::find(logits + block * kSummed, logits + count, peak) - logits);
}

Ranking::Ranking(const Survey& survey, int wanted)
    : survey_(survey), maxima_(survey.maxima), groups_(std::max(kFewest, static_cast<size_t>(wanted))) {}

bool Ranking::find_more() {
  if (all_) return false;
  const float from = next_bound();
  const size_t first = keys_.size();
  gather(from);
  sort_from(first);
  above_ = from;
  groups_ *= kGrowth;
  return true;
}

float Ranking::next_bound() {
  if (groups_ >= maxima_.size() && !fine_) {
    maxima_ = fine_maxima(survey_.logits, survey_.count);
    fine_ = true;
  }
  all_ = groups_ >= maxima_.size();
  if (all_) return -std::numeric_limits<float>::infinity();
  const auto edge = maxima_.begin() + static_cast<ptrdiff_t>(groups_) - 1;
  std::nth_element(maxima_.begin(), edge, maxima_.end(), std::greater<float>());
  return *edge;
}

// Those from `from` up to the last tier's bound, by token. Without branches: which logits reach it is not foreseen.
void Ranking::gather(float from) {
  uint64_t found[kSummed];
  for (size_t b = 0; b < survey_.maxima.size(); ++b) {
    if (survey_.maxima[b] < from) continue;
    const int begin = static_cast<int>(b) * kSummed, end = std::min(begin + kSummed, survey_.count);
    size_t n = 0;
    for (int i = begin; i < end; ++i) {
      const float x = survey_.logits[i];
      found[n] = key(x, i);
      n += static_cast<size_t>((x >= from) & (x < above_));
    }
    keys_.insert(keys_.end(), found, found + n);
  }
}

void Ranking::sort_from(size_t first) {
  const auto begin = keys_.begin() + static_cast<ptrdiff_t>(first);
  if (keys_.size() - first < kRadixFrom) return std::sort(begin, keys_.end());
  std::vector<uint64_t> keys(begin, keys_.end()), spare(keys.size());
  for (int shift = 32; shift < 64; shift += 8) sort_by_byte(keys, spare, shift);  // tokens ascend already
  std::copy(keys.begin(), keys.end(), begin);
}

}  // namespace sapwood
