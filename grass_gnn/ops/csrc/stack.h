// The arguments of the operation. native.py mirrors this structure field by field.
#pragma once

#include <cstdint>

#include "precision.h"

enum GrassNorm : int64_t { grass_no_norm = 0, grass_batch_norm = 1, grass_instance_norm = 2 };

struct GrassStack {
  int64_t nodes, edges, graphs, layers, width, threads;
  int64_t first_layer, seed;
  int64_t norm, flip, output_bias;
  double residual_scale, removal;

  const int64_t* edge_index;  // [2, E]
  const int32_t* tail_ptr;    // [N + 1]
  const int32_t* tail_order;  // [E]
  const int32_t* head_ptr;    // [N + 1]
  const int32_t* head_order;  // [E]
  const int32_t* graph_ptr;   // [B + 1]
  const float* weights;       // [L, P]
  const float* given;         // [L, 2, 2, d]: statistics to normalise by, or null

  const float *x, *e;        // [N, d], [E, d]
  float *x_out, *e_out;      // [N, d], [E, d], normalised
  // Inputs of layers 1…, [L - 1, N, d], [L - 1, E, d], or null: in bfloat16 in mixed precision.
  grass::Element *x_saved, *e_saved;
  float* affine;             // [L, 2, G, 2, d]: shift and scale of each layer's norm
  float* statistics;         // [L, 2, 2, d]: mean and variance of each layer's rows

  const float *grad_x_out, *grad_e_out;
  float *grad_x, *grad_e;  // [N, d], [E, d]
  float* grad_weights;     // [L, P]

  // Sums over all processes that share the batch norm, returns 0 on success; or null.
  int (*add_up)(double* sums, int64_t count);
};

// Return values of the C functions.
enum GrassStatus : int { grass_ok = 0, grass_bad_order = 1, grass_no_memory = 2, grass_failed = 3 };
