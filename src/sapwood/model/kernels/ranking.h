// The tokens of a row from the largest logit down, among equals the lower id first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace sapwood {

// What one pass over a row tells.
struct Survey {
  explicit Survey(const float* logits, int count);

  int first_peak() const;

  const float* logits;
  int count;
  float peak;
  bool finite;                // all of them
  bool usable;                // neither NaN nor +inf among them: what else a survey tells holds for these alone
  std::vector<float> maxima;  // of each kSummed tokens
};

// Found a tier at a time. A tier is whatever reaches the n-th largest of the maxima of groups of tokens: at least n
// tokens, and not many more. What the tiers are does not change the order, only how soon it is known.
class Ranking {
 public:
  // `wanted`: how many are asked for at least; more are found when asked for.
  Ranking(const Survey& survey, int wanted);

  // Whether there is a token of that rank, from 0 on.
  bool reach(size_t rank) {
    while (rank >= keys_.size())
      if (!find_more()) return false;
    return true;
  }
  size_t reached() const { return keys_.size(); }
  int token(size_t rank) const { return static_cast<int>(keys_[rank] & 0xffffffffu); }

 private:
  bool find_more();
  float next_bound();
  void gather(float from);
  void sort_from(size_t first);

  const Survey& survey_;
  std::vector<float> maxima_;   // of groups of kSummed tokens, later of 8
  std::vector<uint64_t> keys_;  // the logit's place in descending order, then the token
  size_t groups_;               // whose maxima bound the next tier
  float above_ = std::numeric_limits<float>::infinity();  // the last tier's bound
  bool fine_ = false, all_ = false;
};

}  // namespace sapwood
