#include "draw.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "ranking.h"
#include "weights.h"

namespace sapwood {

namespace {

// The weights of one block's tokens; those beyond the end of the row weigh nothing.
struct Block {
  Block(const Survey& s, size_t index) : first(static_cast<int>(index) * kSummed) {
    std::fill(logits, logits + kSummed, -std::numeric_limits<float>::infinity());
    std::copy(s.logits + first, s.logits + std::min(first + kSummed, s.count), logits);
  }
  double weight(Scale scale) const { return block_weight(logits, scale); }
  int first;
  float logits[kSummed];
};

// Sums of the weights up to the end of each block, one chain over the blocks' sums.
std::vector<double> running_weights(const Survey& s, Scale scale) {
  std::vector<double> running;
  running.reserve(s.maxima.size());
  double sum = 0;
  for (size_t b = 0; b < s.maxima.size(); ++b) {
    const int first = static_cast<int>(b) * kSummed;
    sum += first + kSummed <= s.count ? block_weight(s.logits + first, scale) : Block(s, b).weight(scale);
    running.push_back(sum);
  }
  return running;
}

// The first place whose running weight passes that part of the whole, or else the last that adds any.
size_t pass(const std::vector<double>& running, double number) {
  const double goal = number * running.back();
  const auto at = std::upper_bound(running.begin(), running.end(), goal);
  if (at != running.end()) return static_cast<size_t>(at - running.begin());
  return static_cast<size_t>(std::lower_bound(running.begin(), running.end(), running.back()) - running.begin());
}

// From all tokens, by id: the block first, then the token in it, from the sum before the block on.
int pick_from_all(const Survey& s, Scale scale, double number) {
  const std::vector<double> running = running_weights(s, scale);
  const size_t at = pass(running, number);
  const Block block(s, at);
  double sum = at == 0 ? 0 : running[at - 1];
  int last = block.first;
  for (int i = 0; i < kSummed; i += 4) {
    f64x4 weights[1];
    scale.weigh<1>(block.logits + i, weights);
    for (int j = 0; j < 4; ++j) {
      if (weights[0][j] > 0) last = block.first + i + j;
      sum += weights[0][j];
      if (sum > number * running.back()) return last;
    }
  }
  return last;
}

// Weights by rank.
class Descent {
 public:
  Descent(const Survey& s, Scale scale, int wanted) : survey_(s), scale_(scale), ranking_(s, wanted) {}

  bool reach(size_t rank) {
    if (rank < weights_.size()) return true;
    if (!ranking_.reach(rank)) return false;
    while (weights_.size() < ranking_.reached()) weigh_four();
    return true;
  }
  double weight(size_t rank) const { return weights_[rank]; }
  int token(size_t rank) const { return ranking_.token(rank); }

 private:
  void weigh_four() {
    const size_t first = weights_.size(), n = std::min<size_t>(4, ranking_.reached() - first);
    float logits[4] = {};
    for (size_t j = 0; j < n; ++j) logits[j] = survey_.logits[ranking_.token(first + j)];
    f64x4 weights[1];
    scale_.weigh<1>(logits, weights);
    for (size_t j = 0; j < n; ++j) weights_.push_back(weights[0][j]);
  }
  const Survey& survey_;
  Scale scale_;
  Ranking ranking_;
  std::vector<double> weights_;
};

// What the tokens that top-k leaves weigh together, in the order in which they are chosen from.
double weight_left(const Survey& s, Scale scale, Descent& descent, int top_k) {
  if (top_k == 0) return running_weights(s, scale).back();
  double sum = 0;
  for (size_t i = 0; i < static_cast<size_t>(top_k) && descent.reach(i); ++i) sum += descent.weight(i);
  return sum;
}

// From the likeliest down: those that survive top-k, then top-p, then min-p, the first always.
int pick_from_kept(const Survey& s, Scale scale, const Draw& draw) {
  const int top_k = draw.top_k < s.count ? draw.top_k : 0;
  Descent descent(s, scale, top_k);
  const double enough = draw.top_p < 1 ? draw.top_p * weight_left(s, scale, descent, top_k)
                                       : std::numeric_limits<double>::infinity();
  std::vector<double> running;
  double sum = 0;
  for (size_t i = 0; (top_k == 0 || i < static_cast<size_t>(top_k)) && descent.reach(i); ++i) {
    if (i > 0 && (sum >= enough || descent.weight(i) < draw.min_p)) break;
    sum += descent.weight(i);
    running.push_back(sum);
  }
  return descent.token(pass(running, draw.number));
}

}  // namespace

Picked pick(const float* logits, int count, const Draw& draw) {
  const Survey survey(logits, count);
  if (!survey.usable) return {0, false};
  if (draw.temperature == 0) return {survey.first_peak(), survey.finite};
  const double rate = std::min(1 / draw.temperature, std::numeric_limits<double>::max());
  const Scale scale{survey.peak, rate};
  const bool cut = draw.top_k > 0 || draw.top_p < 1 || draw.min_p > 0;
  const int token = cut ? pick_from_kept(survey, scale, draw) : pick_from_all(survey, scale, draw.number);
  return {token, survey.finite};
}

Ranked rank(const float* logits, int count, int top, int* tokens) {
  const Survey survey(logits, count);
  if (!survey.usable) {
    std::fill(tokens, tokens + top, 0);
    return {0, 0, false};
  }
  Ranking ranking(survey, top);
  for (int i = 0; i < top && ranking.reach(static_cast<size_t>(i)); ++i) tokens[i] = ranking.token(i);
  return {survey.peak + 0.0, running_weights(survey, {survey.peak, 1.0}).back(), survey.finite};
}

}  // namespace sapwood
