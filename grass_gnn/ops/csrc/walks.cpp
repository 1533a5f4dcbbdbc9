// Random walk probabilities of chosen pairs of nodes, for all graphs of a batch.
//
// The walks of one graph are independent of those of another, and so are the columns of
// T^h = T · T^(h-1). Work is divided into blocks of columns of one graph that stay in cache
// for all k steps; only the probabilities of requested pairs are kept.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "threads.h"
#include "vec.h"

namespace {

// Doubles in a register. Vectors of another length would be taken apart in memory.
constexpr int64_t kLane = grass::native_lanes / 2;
constexpr int64_t kTile = 32;                 // columns whose sums stay in registers
constexpr int64_t kCacheNumbers = 1 << 12;    // of a block: 32 KB in double fit into L1

// The rows of T: edges sorted by head, their tails numbered within the graph.
struct Transition {
  std::vector<int64_t> first;   // [N + 1]
  std::vector<int32_t> column;  // [E]
  std::vector<double> value;    // [E]
};

struct Block {
  int64_t node;    // first node of the graph
  int64_t size;    // number of nodes of the graph
  int64_t column;  // first column of the block
  int64_t width;   // number of columns, a multiple of kLane
};

// Position of the probability of a pair in a block and in the output.
struct Lookup {
  int64_t place;
  float* target;
};

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// Wide enough to use an edge for several registers, even if the block then does not fit into L1.
int64_t block_width(int64_t size) {
  const int64_t fitting = std::max<int64_t>(kTile, kCacheNumbers / size / kTile * kTile);
  return std::min(fitting, round_up(size, kLane));
}

Transition transition_rows(const int64_t* head, const int64_t* tail, const float* probability,
                           int64_t num_edges, int64_t num_nodes,
                           const std::vector<int64_t>& graph_start) {
  Transition rows{std::vector<int64_t>(num_nodes + 1, 0), std::vector<int32_t>(num_edges),
                  std::vector<double>(num_edges)};
  std::vector<double> total(num_nodes, 0.0);
  for (int64_t e = 0; e < num_edges; ++e) {
    ++rows.first[head[e] + 1];
    total[head[e]] += probability[e];
  }
  std::partial_sum(rows.first.begin(), rows.first.end(), rows.first.begin());
  std::vector<int64_t> next(rows.first.begin(), rows.first.end() - 1);
  for (int64_t e = 0; e < num_edges; ++e) {
    const int64_t i = head[e];
    const int64_t at = next[i]++;
    rows.column[at] = static_cast<int32_t>(tail[e] - graph_start[i]);
    // Probabilities are stored in float: dividing again makes rows sum to one in double.
    rows.value[at] = total[i] > 0 ? probability[e] / total[i] : 0.0;
  }
  return rows;
}

// Columns that the compiler keeps in one register (or a few shorter ones).
typedef double Lane __attribute__((vector_size(8 * kLane)));

// Row i of after = T · before, in `lanes` times kLane columns from `column` on.
template <int lanes>
inline void advance_row(const Transition& rows, const Block& block, int64_t i, int64_t column,
                        const double* __restrict before, double* __restrict after) {
  Lane sum[lanes] = {};
  const int64_t end = rows.first[block.node + i + 1];
  for (int64_t e = rows.first[block.node + i]; e < end; ++e) {
    const double value = rows.value[e];
    const double* source = before + rows.column[e] * block.width + column;
    for (int q = 0; q < lanes; ++q) {
      Lane x;
      std::memcpy(&x, source + q * kLane, sizeof(Lane));
      sum[q] += value * x;
    }
  }
  std::memcpy(after + i * block.width + column, sum, sizeof(sum));
}

// One step of all walks of the graph that end in the block: after = T · before.
void advance(const Transition& rows, const Block& block, const double* __restrict before,
             double* __restrict after) {
  for (int64_t i = 0; i < block.size; ++i) {
    int64_t c = 0;
    for (; c + kTile <= block.width; c += kTile)
      advance_row<kTile / kLane>(rows, block, i, c, before, after);
    for (; c < block.width; c += kLane) advance_row<1>(rows, block, i, c, before, after);
  }
}

struct Scratch {
  std::vector<double> before, after;  // [size, width]: the probabilities of two successive steps
  std::vector<int32_t> slot;          // [size, width]: row of a place in `kept`, or -1
  std::vector<int64_t> places;        // [U]: the distinct places that are looked up
  std::vector<float> kept;            // [U, k]
};

void walk(const Transition& rows, const Block& block, const Lookup* lookups, int64_t count,
          int64_t k, Scratch& scratch) {
  const int64_t numbers = block.size * block.width;
  scratch.before.assign(numbers, 0.0);
  scratch.after.resize(numbers);
  const int64_t used = std::min(block.width, block.size - block.column);
  for (int64_t c = 0; c < used; ++c) scratch.before[(block.column + c) * block.width + c] = 1.0;

  // Rewiring adds pairs in both directions, so most probabilities are needed more than once.
  scratch.slot.assign(numbers, -1);
  scratch.places.clear();
  for (int64_t l = 0; l < count; ++l) {
    int32_t& slot = scratch.slot[lookups[l].place];
    if (slot >= 0) continue;
    slot = static_cast<int32_t>(scratch.places.size());
    scratch.places.push_back(lookups[l].place);
  }
  const int64_t num_kept = static_cast<int64_t>(scratch.places.size());
  scratch.kept.resize(num_kept * k);
  for (int64_t h = 0; h < k; ++h) {
    advance(rows, block, scratch.before.data(), scratch.after.data());
    scratch.before.swap(scratch.after);
    const double* found = scratch.before.data();
    const int64_t* place = scratch.places.data();
    float* target = scratch.kept.data() + h;
    for (int64_t u = 0; u < num_kept; ++u) target[u * k] = static_cast<float>(found[place[u]]);
  }
  for (int64_t l = 0; l < count; ++l) {
    const float* source = scratch.kept.data() + scratch.slot[lookups[l].place] * k;
    std::memcpy(lookups[l].target, source, k * sizeof(float));
  }
}

// The output is mostly fresh memory, and touching it page by page for the first time takes longer
// than computing its content: request large pages.
void prefer_large_pages([[maybe_unused]] float* out, [[maybe_unused]] int64_t numbers) {
#ifdef __linux__
  constexpr uintptr_t page = 4096, worthwhile = 1 << 22;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(out), end = begin + numbers * sizeof(float);
  const uintptr_t first = (begin + page - 1) / page * page;
  if (end - begin >= worthwhile)
    madvise(reinterpret_cast<void*>(first), (end - first) / page * page, MADV_HUGEPAGE);
#endif
}

}  // namespace

// Writes P_ij of each pair after 1..k steps, and if `both`, P_ji after it: out [M, k or 2k].
// Indices must be in range, and neither edges nor pairs may connect two graphs. Returns 0, or 1 if
// memory or threads run out.
extern "C" int grass_walk_probabilities(const int64_t* graph_ptr, int64_t num_graphs,
                                        const int64_t* edge_index, const float* transition,
                                        int64_t num_edges, const int64_t* pairs, int64_t num_pairs,
                                        int64_t k, int both, float* out, int threads) try {
  const int64_t num_nodes = graph_ptr[num_graphs];
  std::vector<int64_t> graph_start(num_nodes), block_of(num_nodes);  // of a node; of its column
  std::vector<Block> blocks;
  for (int64_t g = 0; g < num_graphs; ++g) {
    const int64_t node = graph_ptr[g], size = graph_ptr[g + 1] - node;
    if (size == 0) continue;
    std::fill_n(graph_start.begin() + node, size, node);
    const int64_t width = block_width(size);
    for (int64_t c = 0; c < size; c += width) {
      std::fill_n(block_of.begin() + node + c, std::min(width, size - c), blocks.size());
      blocks.push_back({node, size, c, width});
    }
  }
  const Transition rows = transition_rows(edge_index, edge_index + num_edges, transition, num_edges,
                                          num_nodes, graph_start);

  // Sort the lookups by block: count, then fill.
  const int directions = both ? 2 : 1;
  std::vector<int64_t> begin(blocks.size() + 1, 0);
  for (int d = 0; d < directions; ++d)
    for (int64_t m = 0; m < num_pairs; ++m) ++begin[block_of[pairs[(1 - d) * num_pairs + m]] + 1];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  std::vector<Lookup> lookups(directions * num_pairs);
  std::vector<int64_t> next(begin.begin(), begin.end() - 1);
  for (int64_t m = 0; m < num_pairs; ++m)
    for (int d = 0; d < directions; ++d) {
      const int64_t i = pairs[d * num_pairs + m], j = pairs[(1 - d) * num_pairs + m];
      const int64_t b = block_of[j];
      const Block& block = blocks[b];
      const int64_t place = (i - block.node) * block.width + j - block.node - block.column;
      lookups[next[b]++] = {place, out + (m * directions + d) * k};
    }

  prefer_large_pages(out, num_pairs * directions * k);
  std::atomic<size_t> next_block{0};
  std::atomic<bool> failed{false};
  const auto work = [&](int) {
    try {
      Scratch scratch;
      for (size_t b; (b = next_block.fetch_add(1)) < blocks.size();)
        if (begin[b] < begin[b + 1])
          walk(rows, blocks[b], lookups.data() + begin[b], begin[b + 1] - begin[b], k, scratch);
    } catch (...) {
      failed = true;
    }
  };
  grass::run_threads(threads, work);
  return failed ? 1 : 0;
} catch (...) {
  return 1;
}
