// Rows of a table of weights as its file holds them, widened to float32: what a step begins with.
#pragma once

#include <cstdint>

#include "packed.h"

namespace sapwood {

// out[0 .. inputs) = the row, times `scale`; `inputs` whole blocks where the format has blocks.
void embed(Format format, const uint8_t* row, int inputs, float scale, float* out);

}  // namespace sapwood
