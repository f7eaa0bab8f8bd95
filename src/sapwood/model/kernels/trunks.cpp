#include "trunks.h"

#include <algorithm>
#include <cstring>

namespace sapwood {

namespace {

int tiles_of(const Span& span) { return (span.start + span.rows - 1) / kTileKeys + 1; }
int whole_tiles_of(const Span& span) { return (span.start + span.rows) / kTileKeys; }

class Trie {
 public:
  Trie(const std::vector<Span>& spans, int page_size) : spans_(spans), page_size_(page_size) {}

  // The stretches of spans that agree on all tiles before `tile`.
  void grow(std::vector<int> members, int tile) {
    const int first = tile;
    while (members.size() > 1) {
      const auto end = std::partition(members.begin(), members.end(),
                                      [&](int i) { return whole_tiles_of(spans_[i]) > tile; });
      if (end != members.end() || !agree(members, tile)) break;
      ++tile;
    }
    if (members.size() == 1) tile = tiles_of(spans_[members[0]]);
    if (tile > first) {
      std::sort(members.begin(), members.end());
      found.push_back({first, tile, members});
    }
    if (members.size() > 1) part(std::move(members), tile);
  }

  std::vector<Stretch> found;

 private:
  // The pages of a tile lie side by side in the table; a tile may begin and end inside a page.
  const int32_t* pages(int i, int tile) const { return spans_[i].pages + tile * kTileKeys / page_size_; }
  size_t bytes(int tile) const {
    const int first = tile * kTileKeys / page_size_, last = ((tile + 1) * kTileKeys - 1) / page_size_;
    return static_cast<size_t>(last - first + 1) * sizeof(int32_t);
  }

  bool agree(const std::vector<int>& members, int tile) const {
    const int32_t* of_first = pages(members[0], tile);
    return std::all_of(members.begin() + 1, members.end(),
                       [&](int i) { return std::memcmp(pages(i, tile), of_first, bytes(tile)) == 0; });
  }

  // Members that end, or whose tile is not whole, go on alone; the others by what the tile holds.
  void part(std::vector<int> members, int tile) {
    const auto end = std::partition(members.begin(), members.end(),
                                    [&](int i) { return whole_tiles_of(spans_[i]) > tile; });
    for (auto alone = end; alone != members.end(); ++alone)
      if (tiles_of(spans_[*alone]) > tile) grow({*alone}, tile);
    members.erase(end, members.end());
    std::sort(members.begin(), members.end(), [&](int a, int b) {
      const int order = std::memcmp(pages(a, tile), pages(b, tile), bytes(tile));
      return order != 0 ? order < 0 : a < b;
    });
    for (size_t i = 0, j; i < members.size(); i = j) {
      for (j = i + 1; j < members.size(); ++j)
        if (std::memcmp(pages(members[i], tile), pages(members[j], tile), bytes(tile)) != 0) break;
      grow({members.begin() + static_cast<ptrdiff_t>(i), members.begin() + static_cast<ptrdiff_t>(j)}, tile);
    }
  }

  const std::vector<Span>& spans_;
  int page_size_;
};

}  // namespace

std::vector<Stretch> stretches_of(const std::vector<Span>& spans, int page_size, bool share) {
  Trie trie(spans, page_size);
  std::vector<int> all;
  for (int i = 0; i < static_cast<int>(spans.size()); ++i) {
    if (share) all.push_back(i);
    else trie.grow({i}, 0);
  }
  if (!all.empty()) trie.grow(std::move(all), 0);
  return std::move(trie.found);
}

}  // namespace sapwood
