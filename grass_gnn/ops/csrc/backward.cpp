// Backward pass of a stack of layers. What the forward pass did not store is recomputed block by
// block.
#include "dispatch.h"
#include "layer.h"
#include "norm_gradient.h"
#include "threads.h"
#include "weight_gradients.h"

namespace grass {

// State shared by all threads.
template <int D>
struct BackwardState {
  const GrassStack& stack;
  const Plan& plan;
  const Width<D> w;
  Barrier barrier;
  Buffer projected, grad_projected;  // [N, 4 · padded]
  Array<Element> active;             // [N, padded]
  Buffer grad_active;                // [N, padded]
  // Gradients of tail←head | edge←head if threads share a graph: per edge [E, 2 · padded], or
  // summed per thread [threads, N, 2 · padded], whichever is smaller.
  const bool by_edge;
  Buffer grad_head;
  std::vector<float> identity;
  NormGradient node_norm, edge_norm;
  GroupSums node_sums, edge_sums;
  std::vector<WeightGradients> gradients;  // one per thread
  bool failed = false;                     // sums over processes failed; set by thread 0 only

  BackwardState(const GrassStack& s, const Plan& p)
      : stack(s), plan(p), w(s.width), barrier(p.threads), projected(4 * s.nodes * w.padded()),
        grad_projected(4 * s.nodes * w.padded()), active(s.nodes * w.padded()),
        grad_active(s.nodes * w.padded()), by_edge(s.edges <= p.threads * s.nodes),
        grad_head(p.split ? 2 * w.padded() * std::min(s.edges, p.threads * s.nodes) : 0),
        identity(Norm::identity(s.width)), node_norm(p.groups, w.padded()),
        edge_norm(p.groups, w.padded()), node_sums(p.groups, p.threads, w.padded()),
        edge_sums(p.groups, p.threads, w.padded()) {
    for (int t = 0; t < p.threads; t++) gradients.emplace_back(w.padded());
  }
};

template <int D>
class BackwardThread {
  using V = typename Width<D>::V;
  using F = typename Width<D>::F;

 public:
  BackwardThread(BackwardState<D>& state, int thread)
      : s_(state), stack_(state.stack), plan_(state.plan), w_(state.w), thread_(thread),
        gradients_(state.gradients[thread]), layer_(stack_, plan_, w_, state.identity),
        node_in_back_(w_, 4, false), edge_in_back_(w_, 3, false), node_out_back_(w_, 1, false),
        edge_out_back_(w_, 1, false), rows_(row_count() * w_.padded()),
        grads_(row_count() * w_.padded()), projected_(row_count() * 3 * w_.padded()),
        grad_active_(row_count() * w_.padded()), active_(row_count() * w_.padded()),
        rounded_rows_(rounded_size(row_count() * w_.padded())),
        rounded_grads_(rounded_size(row_count() * w_.padded())),
        rounded_maps_(rounded_size(row_count() * 4 * w_.padded())),
        outer_(row_count(), 4 * w_.padded()) {}

  void run() {
    const int last = stack_.layers - 1;
    set_layer(last);
    sum_incoming();
    finish_norms(last);
    for (int l = last; l >= 0; l--) {
      set_layer(l);
      const Share& share = side_->shares[thread_];
      s_.node_sums.clear(share, thread_);
      s_.edge_sums.clear(share, thread_);
      gradients_.clear();
      if (plan_.split && !s_.by_edge)
        std::fill_n(own_heads(), 2 * stack_.nodes * w_.padded(), 0.0f);
      for (const Chunk& chunk : share.chunks) {
        for (size_t b = chunk.nodes_begin; b < chunk.nodes_end; b++) project(share.node_blocks[b]);
        if (plan_.split) s_.barrier.wait();
        for (size_t b = chunk.edges_begin; b < chunk.edges_end; b++)
          edges(share.edge_blocks[b], Ahead(*side_, share, b + 1));
        if (plan_.split) s_.barrier.wait();
        for (size_t b = chunk.nodes_begin; b < chunk.nodes_end; b++) nodes(share.node_blocks[b], l);
      }
      gradients_.flush();
      finish_norms(l - 1, [&] {
        add_up(s_.gradients, thread_, layer_.offsets, stack_.width, stack_.residual_scale,
               stack_.grad_weights + l * layer_.offsets.size);
      });
    }
  }

 private:
  size_t row_count() const { return std::max(plan_.most_edges, block_nodes); }

  void set_layer(int l) {
    side_ = &plan_.side(l);
    layer_.set(l);
    const Offsets& at = layer_.offsets;
    const float alpha = static_cast<float>(stack_.residual_scale);
    node_in_back_.pack(layer_.weights + at.node_in);
    edge_in_back_.pack(layer_.weights + at.edge_in);
    node_out_back_.pack(layer_.weights + at.node_out, alpha);
    edge_out_back_.pack(layer_.weights + at.edge_out, alpha);
    // The last layer's output is stored normalised, those of the others before their norm.
    const bool last = l + 1 == stack_.layers;
    const int stored = last ? -1 : l;
    x_output_ = {last ? stack_.grad_x_out : stack_.grad_x, rows_after(stack_, l, 0),
                 layer_.norm_after(stored, 0), layer_.norm_after(l, 0), s_.node_norm.view()};
    e_output_ = {last ? stack_.grad_e_out : stack_.grad_e, rows_after(stack_, l, 1),
                 layer_.norm_after(stored, 1), layer_.norm_after(l, 1), s_.edge_norm.view()};
  }

  void load_nodes(const Block& block) {
    load_rows(block, block.last - block.first, layer_.x, layer_.x_norm, x_output_,
              [first = block.first](int r) { return size_t(first + r); });
  }

  // Normalised inputs of a layer and gradients of its outputs; row r is number `at(r)`.
  template <class At>
  GRASS_INLINE void load_rows(const Block& block, int rows, Rows inputs, Norm norm,
                              const Output& output, At at) {
    float *input = rows_, *grads = grads_;
    Element *rounded_input = rounded_rows_, *rounded_grads = rounded_grads_;
    with(inputs, [=, w = w_, out = output](const auto* from) {
      with(out.value, [=](const auto* values) {
        for (int v = 0; v < w.vectors(); v++) {
          const NormVector<D> input_norm(w, norm, block.group, v);
          const GradientVector<D> passed(w, out, block.group, v);
          for (int r = 0; r < rows; r++) {
            const size_t to = size_t(r) * w.padded() + v * w.lanes, row = at(r) * w.width();
            const F value = input_norm(w.load(from + row, v));
            const F grad = passed(w.load(out.grad + row, v), w.load(values + row, v));
            V::store(input + to, value);
            V::store(grads + to, grad);
            if constexpr (is_mixed) {
              V::store(rounded_input + to, value);
              V::store(rounded_grads + to, grad);
            }
          }
        }
      });
    });
  }

  // Node values that the edges need: linear maps, and gradients of the activations.
  void project(const Block& block) {
    const int rows = block.last - block.first, d = w_.padded();
    load_nodes(block);
    layer_.node_in.multiply(operand(rows_, rounded_rows_), d, rows,
                            s_.projected + size_t(block.first) * 4 * d, 4 * d);
    node_out_back_.multiply(operand(grads_, rounded_grads_), d, rows,
                            s_.grad_active + size_t(block.first) * d, d);
    std::fill_n(s_.grad_projected + size_t(block.first) * 4 * d, size_t(rows) * 4 * d, 0.0f);
  }

  void edges(const Block& block, Ahead ahead) {
    const int begin = side_->ptr[block.first], rows = side_->ptr[block.last] - begin,
              d = w_.padded();
    const int32_t* order = side_->order + begin;
    load_rows(block, rows, layer_.e, layer_.e_norm, e_output_,
              [order](int r) { return size_t(order[r]); });
    layer_.set_keys(order, rows);
    const Element* inputs = operand(rows_, rounded_rows_);
    const Element* grad_outputs = operand(grads_, rounded_grads_);
    const Element* grad_maps = operand(projected_, rounded_maps_);
    layer_.edge_in.multiply(inputs, d, rows, projected_, 3 * d);
    edge_out_back_.multiply(grad_outputs, d, rows, grad_active_, d);
    for (int node = block.first; node < block.last; node++) {
      attend(node, begin);
      ahead.fetch(side_->ptr[node + 1] - side_->ptr[node], w_.width(), layer_.e,
                  e_output_.value, Rows{const_cast<float*>(e_output_.grad), true});
    }
    const int vectors = w_.vectors();
    outer_.add(grad_maps, 3 * d, 3 * d, inputs, vectors, d, rows,
               gradients_[gradients_.at.edge_in]);
    outer_.add(grad_outputs, d, d, active_, vectors, d, rows, gradients_[gradients_.at.edge_out]);
    if (stack_.output_bias) add_columns(grads_, d, rows, gradients_[gradients_.at.edge_out_bias]);
    edge_in_back_.multiply(grad_maps, 3 * d, rows, grads_, d, true);
    const float *input = rows_, *grads = grads_;
    float* result = stack_.grad_e;
    add_gradient_sums(w_, s_.edge_sums.at(block.group, thread_), rows,
                      [=, w = w_](int v, int r, F& value) {
                        const size_t at = size_t(r) * d + v * w.lanes;
                        const F g = V::load(grads + at);
                        value = V::load(input + at);
                        w.store(result + size_t(order[r]) * w.width(), v, g);
                        return g;
                      });
    if (++blocks_ % 64 == 0) gradients_.flush();
  }

  // One node: forward again, then backward. The gradients of the three maps of its edges overwrite
  // their values.
  void attend(int node, int begin) {
    const int d = w_.padded(), first = side_->ptr[node] - begin,
              last = side_->ptr[node + 1] - begin;
    const int32_t* head = side_->head.data() + begin;
    const int32_t* order = side_->order + begin;
    const float *nodes = s_.projected, *node_grads = s_.grad_active, *edge_grads = grad_active_;
    float *edges = projected_, *grad_nodes = s_.grad_projected;
    Element *edge_active = active_, *node_active = s_.active;
    Element* grad_maps = operand(projected_, rounded_maps_);
    // If this thread owns the graph, no other thread writes to its heads.
    const bool add = !plan_.split || !s_.by_edge;
    const int32_t* target = add ? head : order;
    float* grad_head = !plan_.split ? grad_nodes + d : s_.by_edge ? s_.grad_head : own_heads();
    const int stride = plan_.split ? 2 * d : 4 * d;
    const uint32_t* keys = layer_.keys.data();
    const Removal removal = layer_.removal;
    const float root_epsilon = static_cast<float>(std::sqrt(epsilon));
    const auto to_head = [=](int r, int part, int v, F g) {
      float* at = grad_head + size_t(target[r]) * stride + part * d + v * Width<D>::lanes;
      V::store(at, add ? V::load(at) + g : g);
    };
    for (int v = 0; v < w_.vectors(); v++) {
      const size_t own = size_t(node) * 4 * d + v * w_.lanes,
                   own_row = size_t(node) * d + v * w_.lanes;
      F top = V::all(-INFINITY);
      for (int r = first; r < last; r++)
        top = V::max(V::load(edges + (size_t(r) * 3 + 2) * d + v * w_.lanes), top);
      F total{}, sum{}, grad_edge_tail{};
      const F edge_tail = V::load(nodes + own + 3 * d) + V::load(layer_.edge_bias + v * w_.lanes);
      for (int r = first; r < last; r++) {
        float* edge = edges + size_t(r) * 3 * d + v * w_.lanes;
        const float* from = nodes + size_t(head[r]) * 4 * d + v * w_.lanes;
        F kept = V::exp(V::load(edge + 2 * d) - top);
        if (removal.is_on()) kept *= removal.template keep<Width<D>::lanes>(keys[r], v * w_.lanes);
        const F score = kept + root_epsilon;
        const F message = V::load(from + d) + V::load(edge + d);
        total += score;
        sum += score * message;
        V::store(edge + 2 * d, kept);
        V::store(edge + d, message);
        F slope;
        V::store(edge_active + size_t(r) * d + v * w_.lanes,
                 V::mish(V::load(edge) + V::load(from + 2 * d) + edge_tail, slope));
        const F grad_tilde = V::load(edge_grads + size_t(r) * d + v * w_.lanes) * slope;
        V::store(grad_maps + size_t(r) * 3 * d + v * w_.lanes, grad_tilde);
        grad_edge_tail += grad_tilde;
        to_head(r, 1, v, grad_tilde);
      }
      const F inverse = 1.0f / (total + static_cast<float>(epsilon));
      const F aggregated = sum * inverse;
      F slope;
      const F x_tilde =
          V::load(nodes + own) + aggregated + V::load(layer_.node_bias + v * w_.lanes);
      V::store(node_active + own_row, V::mish(x_tilde, slope));
      const F grad_tilde = V::load(node_grads + own_row) * slope;
      V::store(grad_nodes + own, grad_tilde);
      V::store(grad_nodes + own + 3 * d, grad_edge_tail);
      const F factor = grad_tilde * inverse;
      for (int r = first; r < last; r++) {
        const float* edge = edges + size_t(r) * 3 * d + v * w_.lanes;
        Element* grad_map = grad_maps + size_t(r) * 3 * d + v * w_.lanes;
        const F kept = V::load(edge + 2 * d), message = V::load(edge + d);
        const F grad_message = (kept + root_epsilon) * factor;
        V::store(grad_map + d, grad_message);
        // The mean of the messages is what the softmax subtracts: aggregated = Σ a · message.
        V::store(grad_map + 2 * d, kept * factor * (message - aggregated));
        to_head(r, 0, v, grad_message);
      }
    }
  }

  // Called after all edges with these heads have contributed.
  void nodes(const Block& block, int l) {
    const int rows = block.last - block.first, d = w_.padded(), vectors = w_.vectors();
    float* grad_projected = s_.grad_projected + size_t(block.first) * 4 * d;
    if (plan_.split)
      for (int node = block.first; node < block.last; node++) collect(node, plan_.other_side(l));
    load_nodes(block);
    const auto& at = gradients_.at;
    if constexpr (is_mixed)
      for (int i = 0; i < rows * 4 * d; i += w_.lanes)
        V::store(rounded_maps_ + i, V::load(grad_projected + i));
    const Element* grad_maps = operand(grad_projected, rounded_maps_);
    outer_.add(grad_maps, 4 * d, 4 * d, operand(rows_, rounded_rows_), vectors, d, rows,
               gradients_[at.node_in]);
    outer_.add(operand(grads_, rounded_grads_), d, d, s_.active + size_t(block.first) * d, vectors,
               d, rows, gradients_[at.node_out]);
    add_columns(grad_projected, 4 * d, rows, gradients_[at.node_bias]);
    add_columns(grad_projected + 3 * d, 4 * d, rows, gradients_[at.edge_bias]);
    if (stack_.output_bias) add_columns(grads_, d, rows, gradients_[at.node_out_bias]);
    node_in_back_.multiply(grad_maps, 4 * d, rows, grads_, d, true);
    add_gradient_sums(w_, s_.node_sums.at(block.group, thread_), rows, [&](int v, int r, F& value) {
      const size_t row = size_t(r) * d + v * w_.lanes;
      const F g = V::load(grads_ + row);
      value = V::load(rows_ + row);
      w_.store(stack_.grad_x + size_t(block.first + r) * w_.width(), v, g);
      return g;
    });
  }

  float* own_heads() const { return s_.grad_head + 2 * thread_ * stack_.nodes * w_.padded(); }

  // Threads that share a graph store the gradients of heads separately; they are summed here.
  void collect(int node, const Side& by_head) {
    const int d = w_.padded();
    float* to = s_.grad_projected + (size_t(node) * 4 + 1) * d;
    const auto add_row = [&](size_t row) {
      for (int v = 0; v < 2 * w_.vectors(); v++)
        V::add(to + v * w_.lanes, V::load(s_.grad_head + row * 2 * d + v * w_.lanes));
    };
    if (s_.by_edge)
      for (int i = by_head.ptr[node]; i < by_head.ptr[node + 1]; i++) add_row(by_head.order[i]);
    else
      for (int t = 0; t < plan_.threads; t++) add_row(t * stack_.nodes + node);
  }

  void add_columns(const float* a, ptrdiff_t row, int rows, float* sums) const {
    for (int v = 0; v < w_.vectors(); v++) {
      F sum{};
      for (int r = 0; r < rows; r++) sum += V::load(a + r * row + v * w_.lanes);
      V::add(sums + v * w_.lanes, sum);
    }
  }

  // Sums over the incoming gradients for the last norm.
  void sum_incoming() {
    const Share& share = side_->shares[thread_];
    s_.node_sums.clear(share, thread_);
    s_.edge_sums.clear(share, thread_);
    for (const Block& block : share.node_blocks) {
      const int begin = side_->ptr[block.first], rows = side_->ptr[block.last] - begin;
      add_gradient_sums(w_, s_.node_sums.at(block.group, thread_), block.last - block.first,
                        [&](int v, int r, F& value) {
                          value = w_.load(stack_.x_out + size_t(block.first + r) * w_.width(), v);
                          return w_.load(stack_.grad_x_out + size_t(block.first + r) * w_.width(),
                                         v);
                        });
      add_gradient_sums(w_, s_.edge_sums.at(block.group, thread_), rows,
                        [&](int v, int r, F& value) {
                          const size_t row = side_->order[begin + r];
                          value = w_.load(stack_.e_out + row * w_.width(), v);
                          return w_.load(stack_.grad_e_out + row * w_.width(), v);
                        });
    }
  }

  // Called after all threads have arrived: prepares the next norm on the way back.
  template <class Also>
  void finish_norms(int l, Also also) {
    s_.barrier.wait();
    if (l >= 0) {
      finish_norm(s_.node_sums, s_.node_norm);
      finish_norm(s_.edge_sums, s_.edge_norm);
    }
    also();
    s_.barrier.wait();
  }
  void finish_norms(int l) {
    finish_norms(l, [] {});
  }

  void finish_norm(GroupSums& sums, NormGradient& norm) {
    const auto merge = [](Sums& a, const Sums& b) { merge_plain(a, b); };
    sums.finish(side_->shares, thread_, merge,
                [&](int group, Sums& total) {
                  if (stack_.add_up && !s_.failed) s_.failed = !add_up_processes(stack_, total);
                  norm.set(stack_, group, total);
                });
  }

  BackwardState<D>& s_;
  const GrassStack& stack_;
  const Plan& plan_;
  const Width<D> w_;
  const int thread_;
  WeightGradients& gradients_;
  Layer<D> layer_;
  Packed<D> node_in_back_, edge_in_back_, node_out_back_, edge_out_back_;
  Buffer rows_, grads_;          // [rows, padded]: normalised input, gradient of the output
  Buffer projected_;             // [rows, 3 · padded]: edge←edge | tail←edge | attn←edge
  Buffer grad_active_;           // [rows, padded]: of the edges
  Array<Element> active_;        // [rows, padded]: of the edges
  Array<Element> rounded_rows_, rounded_grads_, rounded_maps_;  // operands in mixed precision
  OuterProduct<Width<D>::lanes> outer_;
  size_t blocks_ = 0;
  const Side* side_ = nullptr;
  Output x_output_{}, e_output_{};
};

template <int D>
struct Backward {
  static void run(const GrassStack& stack) {
    const Plan plan(stack);
    prefer_large_pages(stack.grad_e, sizeof(float) * stack.edges * stack.width);
    BackwardState<D> state(stack, plan);
    run_workers<BackwardThread<D>>(plan.threads, state);
    if (state.failed) throw std::runtime_error("add_up");
  }
};

}  // namespace grass

extern "C" int grass_stack_backward(const GrassStack* stack) {
  return grass::run_pass<grass::Backward>(*stack);
}
