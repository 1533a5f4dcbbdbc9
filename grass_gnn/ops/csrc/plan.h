// Division of work: nodes and their in-edges are distributed over threads and divided into
// cache-sized blocks.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "precision.h"
#include "stack.h"

namespace grass {

constexpr int block_edges = 160;  // rows of an edge block, unless one node alone has more in-edges
constexpr int block_nodes = 64;   // rows of a node block
constexpr int chunk_nodes = 256;  // nodes of graphs whose projections stay in cache for the edges

// Consecutive nodes [first, last) of one norm group.
struct Block {
  int first, last, group;
};

// Blocks between two synchronisation points: [begin, end) of a share's node and edge blocks.
struct Chunk {
  size_t nodes_begin, nodes_end, edges_begin, edges_end;
};

// The work of one thread in a layer.
struct Share {
  std::vector<Block> node_blocks, edge_blocks;
  std::vector<Chunk> chunks;
  int first_group = 0, last_group = -1;  // inclusive
};

// The edges of a layer, sorted by tail. A flipped layer uses the other order.
struct Side {
  const int32_t* ptr;
  const int32_t* order;
  std::vector<int32_t> head;  // [E]: the head of each edge, in this order
  std::vector<Share> shares;  // one per thread
};

// Prefetches the rows of the next edge block, a few at a time while this one is computed.
class Ahead {
 public:
  Ahead(const Side& side, const Share& share, size_t next_block) {
    if (next_block >= share.edge_blocks.size()) return;
    row_ = side.order + side.ptr[share.edge_blocks[next_block].first];
    end_ = side.order + side.ptr[share.edge_blocks[next_block].last];
  }

  // Fetches the next `count` rows of `width` values of each array.
  template <class... Arrays>
  GRASS_INLINE void fetch(int count, int width, Arrays... arrays) {
    for (; count > 0 && row_ != end_; count--, row_++) (fetch_row(arrays, width), ...);
  }

 private:
  GRASS_INLINE void fetch_row(Rows rows, int width) const {
    const size_t bytes = width * rows.element_size();
    prefetch(static_cast<const char*>(rows.data) + *row_ * bytes, bytes);
  }

  const int32_t *row_ = nullptr, *end_ = nullptr;
};

class Plan {
 public:
  explicit Plan(const GrassStack& stack)
      : groups(stack.norm == grass_instance_norm ? std::max<int64_t>(stack.graphs, 1) : 1),
        stack_(stack) {
    whole_[1] = static_cast<int32_t>(stack.nodes);
    const double layer_flops = 2.0 * stack.width * stack.width * cost(stack.tail_ptr, stack.nodes);
    threads = static_cast<int>(std::min<double>(stack.threads, 1 + layer_flops / 1e6));
    split = threads > 1 && !graphs_balance();
    check_graphs();
    for (int flipped = 0; flipped < 2; flipped++) {
      sides[flipped].ptr = flipped ? stack.head_ptr : stack.tail_ptr;
      sides[flipped].order = flipped ? stack.head_order : stack.tail_order;
      if (is_used(flipped)) build(sides[flipped], flipped);
    }
  }

  // Layer l counts from zero within this stack.
  const Side& side(int l) const { return sides[is_flipped(l)]; }
  const Side& other_side(int l) const { return sides[!is_flipped(l)]; }

  const int groups;  // of the norm: one, or the graphs
  int threads;
  bool split;          // a graph may be shared by threads
  int most_edges = 0;  // rows of the largest edge block
  Side sides[2];

 private:
  // In products of [1, d] × [d, d]: four per edge and five per node.
  static int64_t cost(const int32_t* ptr, int64_t node) {
    return 4 * int64_t(ptr[node]) + 5 * node;
  }

  bool is_flipped(int l) const { return stack_.flip && (stack_.first_layer + l) % 2 != 0; }

  bool is_used(int flipped) const {
    return split || (stack_.layers > 0 && is_flipped(0) == flipped) ||
           (stack_.layers > 1 && is_flipped(1) == flipped);
  }

  // First nodes of the threads' shares, balanced as well as node or graph boundaries allow.
  std::vector<int> bounds(const int32_t* ptr, bool between_graphs) const {
    const int64_t total = cost(ptr, stack_.nodes),
                  count = between_graphs ? stack_.graphs : stack_.nodes;
    const auto node_at = [&](int64_t i) {
      return between_graphs ? stack_.graph_ptr[i] : int32_t(i);
    };
    std::vector<int> result(threads + 1, static_cast<int>(stack_.nodes));
    result[0] = 0;
    int64_t i = 0;
    for (int t = 1; t < threads; t++) {
      const int64_t goal = total * t / threads;
      while (i < count && cost(ptr, node_at(i + 1)) <= goal) i++;
      if (i < count && cost(ptr, node_at(i + 1)) - goal < goal - cost(ptr, node_at(i))) i++;
      result[t] = node_at(i);
    }
    return result;
  }

  // Whether the work is balanced if threads own whole graphs.
  bool graphs_balance() const {
    const auto nodes = bounds(stack_.tail_ptr, true);
    int64_t most = 0;
    for (int t = 0; t < threads; t++)
      most = std::max(most, cost(stack_.tail_ptr, nodes[t + 1]) - cost(stack_.tail_ptr, nodes[t]));
    return most * threads <= 1.2 * cost(stack_.tail_ptr, stack_.nodes);
  }

  static void check(bool fine, const char* message) {
    if (!fine) throw std::invalid_argument(message);
  }

  void check_graphs() const {
    check(stack_.graph_ptr[0] == 0 && stack_.graph_ptr[stack_.graphs] == stack_.nodes, "graph_ptr");
    for (int64_t b = 0; b < stack_.graphs; b++)
      check(stack_.graph_ptr[b] <= stack_.graph_ptr[b + 1], "graph_ptr");
  }

  void build(Side& side, bool flipped) {
    find_heads(side, flipped);
    const auto nodes = bounds(side.ptr, !split);
    side.shares.resize(threads);
    for (int t = 0; t < threads; t++) cut(side, side.shares[t], nodes[t], nodes[t + 1]);
  }

  // Also checks that all indices are in range, so that a wrong order cannot crash the process.
  void find_heads(Side& side, bool flipped) {
    const int64_t* heads = stack_.edge_index + (flipped ? stack_.edges : 0);
    const int64_t* tails = stack_.edge_index + (flipped ? 0 : stack_.edges);
    side.head.resize(stack_.edges);
    check(side.ptr[0] == 0 && side.ptr[stack_.nodes] == stack_.edges, "ptr");
    for (int64_t b = 0; b < stack_.graphs; b++) {
      const int begin = stack_.graph_ptr[b], end = stack_.graph_ptr[b + 1];
      for (int node = begin; node < end; node++) {
        check(side.ptr[node] <= side.ptr[node + 1] && side.ptr[node + 1] <= stack_.edges, "ptr");
        for (int i = side.ptr[node]; i < side.ptr[node + 1]; i++) {
          const int32_t row = side.order[i];
          check(row >= 0 && row < stack_.edges && tails[row] == node, "order");
          check(heads[row] >= begin && heads[row] < end, "edge between graphs");
          side.head[i] = static_cast<int32_t>(heads[row]);
        }
      }
    }
  }

  // Divides the nodes of a share. A thread that owns whole graphs moves from chunk to chunk on its
  // own; threads that share a graph synchronise after its single chunk.
  void cut(const Side& side, Share& share, int first, int last) {
    int64_t graph = 0;
    for (int node = first; node < last || share.chunks.empty();) {
      int end = last;
      if (!split && last > first) {
        const auto next = std::lower_bound(stack_.graph_ptr + graph,
                                           stack_.graph_ptr + stack_.graphs, node + chunk_nodes);
        graph = next - stack_.graph_ptr;
        end = std::min(last, *next);
      }
      Chunk chunk{share.node_blocks.size(), 0, share.edge_blocks.size(), 0};
      cut_blocks(node, end, [&](int a, int b) { return b - a <= block_nodes; }, share.node_blocks);
      cut_blocks(
          node, end, [&](int a, int b) { return side.ptr[b] - side.ptr[a] <= block_edges; },
          share.edge_blocks);
      chunk.nodes_end = share.node_blocks.size();
      chunk.edges_end = share.edge_blocks.size();
      share.chunks.push_back(chunk);
      node = end;
    }
    for (const Block& block : share.edge_blocks)
      most_edges = std::max(most_edges, side.ptr[block.last] - side.ptr[block.first]);
    if (first == last) return;
    share.first_group = share.node_blocks.front().group;
    share.last_group = share.node_blocks.back().group;
  }

  // Blocks of at least one node, as large as fits, within one norm group.
  template <class Fits>
  void cut_blocks(int first, int last, Fits fits, std::vector<Block>& blocks) const {
    const int32_t* ptr = groups > 1 ? stack_.graph_ptr : whole_;
    int group = std::upper_bound(ptr, ptr + groups, first) - ptr - 1;
    while (first < last) {
      while (ptr[group + 1] <= first) group++;
      const int limit = std::min(last, ptr[group + 1]);
      int end = first + 1;
      while (end < limit && fits(first, end + 1)) end++;
      blocks.push_back({first, end, group});
      first = end;
    }
  }

  const GrassStack& stack_;
  int32_t whole_[2] = {0, 0};
};

}  // namespace grass
