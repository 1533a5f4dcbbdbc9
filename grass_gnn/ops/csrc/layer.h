// What the forward and the backward pass need of a layer: its input rows, their norm, and weights.
#pragma once

#include "norm.h"
#include "removal.h"
#include "weights.h"

namespace grass {

// The rows after layer l, before its norm, of nodes (kind 0) or edges (kind 1); the stack's input
// before the first layer. If nothing is saved, each layer overwrites its input: a row is read
// before it is written.
inline Rows rows_after(const GrassStack& stack, int l, int kind) {
  const float* input = kind == 0 ? stack.x : stack.e;
  float* output = kind == 0 ? stack.x_out : stack.e_out;
  Element* saved = kind == 0 ? stack.x_saved : stack.e_saved;
  if (l < 0) return {const_cast<float*>(input), true};
  if (l + 1 == stack.layers || !saved) return {output, true};
  return {saved + l * (kind == 0 ? stack.nodes : stack.edges) * stack.width, false};
}

// The layer that a thread computes. Each thread packs the weights for itself.
template <int D>
struct Layer {
  const GrassStack& stack;
  const Plan& plan;
  const std::vector<float>& identity;  // norm of the first layer's input
  const Offsets offsets;
  const float* weights = nullptr;  // of this layer
  Packed<D> node_in, edge_in;
  Bias<D> node_bias, edge_bias;
  Removal removal{0.0, 0, 0};
  std::vector<uint32_t> keys;  // for edge removal, one per row of an edge block
  Rows x{}, e{};               // input
  Norm x_norm{}, e_norm{};     // of the input

  Layer(const GrassStack& s, const Plan& p, Width<D> w, const std::vector<float>& no_norm)
      : stack(s), plan(p), identity(no_norm), offsets(s.width, s.output_bias),
        node_in(w, 4, true), edge_in(w, 3, true), node_bias(w), edge_bias(w), keys(p.most_edges) {}

  void set(int l) {
    weights = stack.weights + l * offsets.size;
    node_in.pack(weights + offsets.node_in);
    edge_in.pack(weights + offsets.edge_in);
    node_bias.fill(weights + offsets.node_bias);
    edge_bias.fill(weights + offsets.edge_bias);
    removal = Removal(stack.removal, stack.seed, stack.first_layer + l);
    x = rows_after(stack, l - 1, 0);
    e = rows_after(stack, l - 1, 1);
    x_norm = norm_after(l - 1, 0);
    e_norm = norm_after(l - 1, 1);
  }

  Norm norm_after(int l, int kind) const {
    return Norm::after(stack, plan.groups, l, kind, identity.data());
  }

  // Prepares the removal of edges from a block.
  void set_keys(const int32_t* order, int rows) {
    if (!removal.is_on()) return;
    for (int r = 0; r < rows; r++) keys[r] = removal.row_key(order[r]);
  }
};

}  // namespace grass
