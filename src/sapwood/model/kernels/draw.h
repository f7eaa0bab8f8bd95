// Which token a row of logits gives for a number in [0, 1): the sampler's arithmetic, a fixed sequence of operations.
#pragma once

namespace sapwood {

// temperature 0 takes the largest logit; top_k 0, top_p 1 and min_p 0 cut nothing.
struct Draw {
  double temperature;
  int top_k;
  double top_p, min_p, number;
};

struct Picked {
  int token;    // of a row with NaN or +inf: 0, which means nothing
  bool finite;  // whether all logits are
};

// -inf is a token that cannot be drawn; there is another.
Picked pick(const float* logits, int count, const Draw& draw);

struct Ranked {
  double peak;    // the largest logit
  double weight;  // sum of exp(logit - peak)
  bool finite;
};

// `tokens`: where the `top` largest go, at most `count`, the largest first, among equals the lower id.
Ranked rank(const float* logits, int count, int top, int* tokens);

}  // namespace sapwood
