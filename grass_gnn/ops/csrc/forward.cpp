// Forward pass of a stack of layers. Equation numbers are the paper's; reference.py is the same in
// PyTorch.
#include "dispatch.h"
#include "layer.h"
#include "threads.h"

namespace grass {

// State shared by all threads.
template <int D>
struct ForwardState {
  const GrassStack& stack;
  const Plan& plan;
  const Width<D> w;
  Barrier barrier;
  Buffer projected;             // [N, 4 · padded]: tail←tail | tail←head | edge←head | edge←tail
  Array<Element> active;        // [N, padded]: mish of the aggregated nodes
  std::vector<float> identity;  // norm of the first layer's input
  GroupSums node_sums, edge_sums;
  bool failed = false;  // sums over processes failed; set by thread 0 only

  ForwardState(const GrassStack& s, const Plan& p)
      : stack(s), plan(p), w(s.width), barrier(p.threads), projected(4 * s.nodes * w.padded()),
        active(s.nodes * w.padded()), identity(Norm::identity(s.width)),
        node_sums(p.groups, p.threads, w.padded()), edge_sums(p.groups, p.threads, w.padded()) {}
};

template <int D>
class ForwardThread {
  using V = typename Width<D>::V;
  using F = typename Width<D>::F;

 public:
  ForwardThread(ForwardState<D>& state, int thread)
      : s_(state), stack_(state.stack), plan_(state.plan), w_(state.w), thread_(thread),
        layer_(stack_, plan_, w_, state.identity), node_out_(w_, 1, true), edge_out_(w_, 1, true),
        node_out_bias_(w_), edge_out_bias_(w_),
        rows_(row_count() * w_.padded()), projected_(row_count() * 3 * w_.padded()),
        rounded_(rounded_size(row_count() * w_.padded())),
        active_edges_(rounded_size(row_count() * w_.padded())),
        active_(operand(projected_, active_edges_)) {}

  void run() {
    for (int l = 0; l < stack_.layers; l++) {
      set_layer(l);
      const Share& share = side_->shares[thread_];
      s_.node_sums.clear(share, thread_);
      s_.edge_sums.clear(share, thread_);
      for (const Chunk& chunk : share.chunks) {
        for (size_t b = chunk.nodes_begin; b < chunk.nodes_end; b++) project(share.node_blocks[b]);
        if (plan_.split) s_.barrier.wait();
        for (size_t b = chunk.edges_begin; b < chunk.edges_end; b++)
          edges(share.edge_blocks[b], Ahead(*side_, share, b + 1));
        for (size_t b = chunk.nodes_begin; b < chunk.nodes_end; b++) nodes(share.node_blocks[b]);
      }
      s_.barrier.wait();
      finish_norm(l, 0, s_.node_sums);
      finish_norm(l, 1, s_.edge_sums);
      s_.barrier.wait();
    }
    const Share& share = side_->shares[thread_];
    for (const Block& block : share.node_blocks) normalise(block);
  }

 private:
  size_t row_count() const { return std::max(plan_.most_edges, block_nodes); }

  void set_layer(int l) {
    side_ = &plan_.side(l);
    layer_.set(l);
    const Offsets& at = layer_.offsets;
    const float alpha = static_cast<float>(stack_.residual_scale);
    node_out_.pack(layer_.weights + at.node_out, alpha);
    edge_out_.pack(layer_.weights + at.edge_out, alpha);
    if (stack_.output_bias) {
      node_out_bias_.fill(layer_.weights + at.node_out_bias, alpha);
      edge_out_bias_.fill(layer_.weights + at.edge_out_bias, alpha);
    }
    x_next_ = rows_after(stack_, l, 0);
    e_next_ = rows_after(stack_, l, 1);
  }

  // The four linear maps of every node, before the edges need them.
  void project(const Block& block) {
    const int rows = block.last - block.first, d = w_.padded();
    load_nodes(block);
    layer_.node_in.multiply(operand(rows_, rounded_), d, rows,
                            s_.projected + size_t(block.first) * 4 * d, 4 * d);
  }

  void load_nodes(const Block& block) {
    with(layer_.x, [&](const auto* x) {
      for (int node = block.first; node < block.last; node++)
        for (int v = 0; v < w_.vectors(); v++) {
          const size_t at = size_t(node - block.first) * w_.padded() + v * w_.lanes;
          const F value = normalised(w_, x, node, layer_.x_norm, block.group, v);
          V::store(rows_ + at, value);
          if constexpr (is_mixed) V::store(rounded_ + at, value);
        }
    });
  }

  // All in-edges of a block of nodes: attention, aggregation and the edge update.
  void edges(const Block& block, Ahead ahead) {
    const int begin = side_->ptr[block.first], rows = side_->ptr[block.last] - begin,
              d = w_.padded();
    const int32_t* order = side_->order + begin;
    float *input = rows_, *projected = projected_;
    Element* rounded = rounded_;
    const Norm norm = layer_.e_norm;
    with(layer_.e, [=, w = w_](const auto* e) {
      for (int v = 0; v < w.vectors(); v++) {
        const NormVector<D> input_norm(w, norm, block.group, v);
        for (int r = 0; r < rows; r++) {
          const F value = input_norm(w.load(e + size_t(order[r]) * w.width(), v));
          V::store(input + size_t(r) * d + v * w.lanes, value);
          if constexpr (is_mixed) V::store(rounded + size_t(r) * d + v * w.lanes, value);
        }
      }
    });
    layer_.set_keys(order, rows);
    layer_.edge_in.multiply(operand(input, rounded), d, rows, projected, 3 * d);
    for (int node = block.first; node < block.last; node++) {
      attend(node, begin);
      ahead.fetch(side_->ptr[node + 1] - side_->ptr[node], w_.width(), layer_.e, e_next_);
    }
    // Equation (12). The product overwrites the logits, which are no longer needed.
    edge_out_.multiply(active_, active_row(), rows, projected + 2 * d, 3 * d);
    const float* bias = edge_out_bias_;
    with(e_next_, [=](auto* next) {
      add_moments(w_, s_.edge_sums.at(block.group, thread_), rows, [=, w = w_](int v, int r) {
        const F residual = V::load(input + size_t(r) * d + v * w.lanes);
        const F update = V::load(projected + (size_t(r) * 3 + 2) * d + v * w.lanes);
        const F value = residual + update + V::load(bias + v * w.lanes);
        return stored(w, next + size_t(order[r]) * w.width(), v, value);
      });
    });
  }

  // Activated edges take the place of the map that they come from, unless they are rounded.
  int active_row() const { return is_mixed ? w_.padded() : 3 * w_.padded(); }

  // One node: equations (7) to (10), and mish of both sums.
  void attend(int node, int begin) {
    const int d = w_.padded(), first = side_->ptr[node] - begin,
              last = side_->ptr[node + 1] - begin;
    const int32_t* head = side_->head.data() + begin;
    float *nodes = s_.projected, *edges = projected_;
    Element *active = s_.active, *active_edges = active_;
    const int active_row = this->active_row();
    const uint32_t* keys = layer_.keys.data();
    const Removal removal = layer_.removal;
    const float root_epsilon = static_cast<float>(std::sqrt(epsilon));
    for (int v = 0; v < w_.vectors(); v++) {
      const float* own = nodes + size_t(node) * 4 * d + v * w_.lanes;
      F top = V::all(-INFINITY);
      for (int r = first; r < last; r++)
        top = V::max(V::load(edges + (size_t(r) * 3 + 2) * d + v * w_.lanes), top);
      F total{}, sum{};
      const F edge_tail = V::load(own + 3 * d) + V::load(layer_.edge_bias + v * w_.lanes);
      for (int r = first; r < last; r++) {
        float* edge = edges + size_t(r) * 3 * d + v * w_.lanes;
        const float* from = nodes + size_t(head[r]) * 4 * d + v * w_.lanes;
        F score = V::exp(V::load(edge + 2 * d) - top);
        if (removal.is_on()) score *= removal.template keep<Width<D>::lanes>(keys[r], v * w_.lanes);
        score += root_epsilon;
        total += score;
        sum += score * (V::load(from + d) + V::load(edge + d));
        V::store(active_edges + size_t(r) * active_row + v * w_.lanes,
                 V::mish(V::load(edge) + V::load(from + 2 * d) + edge_tail));
      }
      const F aggregated = sum / (total + static_cast<float>(epsilon));
      const F x_tilde = V::load(own) + aggregated + V::load(layer_.node_bias + v * w_.lanes);
      V::store(active + size_t(node) * d + v * w_.lanes, V::mish(x_tilde));
    }
  }

  // Equation (11), after the edges of these nodes.
  void nodes(const Block& block) {
    const int rows = block.last - block.first, d = w_.padded();
    load_nodes(block);
    node_out_.multiply(s_.active + size_t(block.first) * d, d, rows, projected_, d);
    with(x_next_, [&](auto* next) {
      add_moments(w_, s_.node_sums.at(block.group, thread_), rows, [&](int v, int r) {
        const F update = V::load(projected_ + size_t(r) * d + v * w_.lanes);
        const F residual = V::load(rows_ + size_t(r) * d + v * w_.lanes);
        const F value = residual + update + V::load(node_out_bias_ + v * w_.lanes);
        return stored(w_, next + size_t(block.first + r) * w_.width(), v, value);
      });
    });
  }

  // Stores part of a row and returns what the next layer will read. Moments of unrounded rows would
  // make the rounding of a channel that is the same in all rows look like a large deviation.
  template <class T>
  static F stored(const Width<D>& w, T* row, int v, F value) {
    w.store(row, v, value);
    return is_mixed ? w.load(row, v) : value;
  }

  // From the moments of this layer's rows (kind 0: nodes, 1: edges) to the norm of the next layer's
  // input.
  void finish_norm(int l, int kind, GroupSums& sums) {
    const auto merge = [](Sums& a, const Sums& b) { merge_moments(a, b); };
    sums.finish(side_->shares, thread_, merge, [&](int group, Sums& moments) {
      if (stack_.add_up && !s_.failed) s_.failed = !add_up_moments(stack_, moments);
      const int d = w_.width();
      const size_t at = size_t(l) * 2 + kind;
      float* affine = stack_.affine + at * Norm::size(stack_, plan_.groups) + group * 2 * d;
      float* statistics = stack_.statistics + at * 2 * d;
      const float* given = stack_.given ? stack_.given + at * 2 * d : nullptr;
      for (int c = 0; c < d; c++) {
        const double mean = moments.first[c], rows = std::max(moments.rows, 1.0);
        const double variance = moments.second[c] / std::max(moments.rows - 1, 1.0);
        double shift = 0, scale = 1;
        if (stack_.norm == grass_batch_norm) {
          statistics[c] = static_cast<float>(mean);
          statistics[d + c] = static_cast<float>(variance);
          shift = given ? given[c] : mean;
          scale = 1 / std::sqrt((given ? given[d + c] : variance) + epsilon);
        } else if (stack_.norm == grass_instance_norm) {
          scale = 1 / std::sqrt(moments.second[c] / rows + mean * mean + epsilon);
        }
        affine[c] = static_cast<float>(shift);
        affine[d + c] = static_cast<float>(scale);
      }
    });
  }

  // Normalises the output of the last layer, which no next layer does.
  void normalise(const Block& block) {
    const auto row = [&](float* values, size_t at, Norm norm) {
      for (int v = 0; v < w_.vectors(); v++)
        w_.store(values + at * w_.width(), v, normalised(w_, values, at, norm, block.group, v));
    };
    const Norm node_norm = layer_.norm_after(stack_.layers - 1, 0),
               edge_norm = layer_.norm_after(stack_.layers - 1, 1);
    for (int node = block.first; node < block.last; node++) row(stack_.x_out, node, node_norm);
    for (int i = side_->ptr[block.first]; i < side_->ptr[block.last]; i++)
      row(stack_.e_out, side_->order[i], edge_norm);
  }

  ForwardState<D>& s_;
  const GrassStack& stack_;
  const Plan& plan_;
  const Width<D> w_;
  const int thread_;
  Layer<D> layer_;
  Packed<D> node_out_, edge_out_;
  Bias<D> node_out_bias_, edge_out_bias_;
  Buffer rows_;                 // [rows, padded]: normalised input
  Buffer projected_;            // [rows, 3 · padded]: edge←edge | tail←edge | attn←edge
  Array<Element> rounded_;      // [rows, padded]: rows_, in mixed precision
  Array<Element> active_edges_; // [rows, padded]: in mixed precision
  Element* const active_;       // activated edges
  const Side* side_ = nullptr;
  Rows x_next_{}, e_next_{};  // output of the layer
};

template <int D>
struct Forward {
  static void run(const GrassStack& stack) {
    const Plan plan(stack);
    const size_t row = sizeof(Element) * stack.width, kept = stack.layers - 1;
    prefer_large_pages(stack.e_out, stack.edges * sizeof(float) * stack.width);
    if (stack.e_saved) prefer_large_pages(stack.e_saved, kept * stack.edges * row);
    if (stack.x_saved) prefer_large_pages(stack.x_saved, kept * stack.nodes * row);
    ForwardState<D> state(stack, plan);
    run_workers<ForwardThread<D>>(plan.threads, state);
    if (state.failed) throw std::runtime_error("add_up");
  }
};

}  // namespace grass

extern "C" int grass_stack_forward(const GrassStack* stack) {
  return grass::run_pass<grass::Forward>(*stack);
}
