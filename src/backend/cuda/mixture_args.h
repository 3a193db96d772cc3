// What crosses from the host to the kernels of a mixture of experts besides products (kernels/mixture.cu). As args.h.
#pragma once

#include "backend/cuda/args.h"

namespace honeycrisp::backend::cuda {

/// Scores of all experts for listed rows.
struct RouteArgs {
  Rows in;
  uint32_t cols = 0;
  RowList rows;
  NormArgs router_norm, input_norm;
  const float* matrix = nullptr;  // [n_experts][cols]
  uint32_t n_experts = 0;
  const float* shared_scale = nullptr;  // [cols] of the shared expert, over what experts read; may be absent
  const float* bias = nullptr;          // may be absent
  float* scores = nullptr;              // [listed rows][n_experts + 1]: the last is the shared expert's
};

/// The choice by scores.
struct ChoiceArgs {
  const float* scores = nullptr;  // as RouteArgs's; null: no choice
  uint32_t n_experts = 0, top_k = 0;
  program::Routing routing = program::Routing::kSoftmaxTopK;
  const float* expert_scale = nullptr;  // may be absent
  uint32_t* experts = nullptr;          // [listed rows][top_k], best first
  float* weights = nullptr;             // [listed rows][top_k]
};

/// hidden[pair] = unit(gate + bias, up + bias) of products [pairs]{gate, up}.
struct GatePairsArgs {
  program::Activation activation = program::Activation::kSilu;
  Pairs pairs;
  uint32_t n = 0;  // of either
  Rows products;
  const float* bias[2] = {};  // [experts][n]; may be absent
  float* hidden = nullptr;    // [pairs][n]
};

/// y = Σ over ranks, in order, of weight · (product + bias), plus the shared expert's; then its norm, the addend and
/// the residual.
struct CombineArgs {
  RowList rows;
  uint32_t cols = 0, top_k = 0, n_experts = 0;
  Rows products;  // [pairs]; overwritten
  const uint32_t* experts = nullptr;
  const float* weights = nullptr;
  const float* bias = nullptr;          // [experts][cols]; may be absent
  Rows shared;                          // by rows of the buffers; data may be absent
  const float* shared_score = nullptr;  // of listed row i at i · (n_experts + 1); may be absent
  NormArgs branch_norm, post_norm;
  Rows add;  // data may be absent
  Rows x;
  float branch_scale = 1, residual_scale = 1;
};

/// Products of pairs over packed tiles.
struct ExpertMatVecArgs {
  MatVecArgs product;  // of pairs; biases: [experts][rows]
  ChoiceArgs choice;   // present: the kernel chooses, and stores the choice
  SortedPairs sorted;  // present: kMatVecRows pairs of an expert come together
  CombineArgs sum;     // x present: products of a row's pairs are added up. Without norms and addend
};

inline constexpr uint32_t kMostSummedTiles = 64;     // k tiles of all experts of a row that are added up at once
inline constexpr uint32_t kMostChosenInPlace = 512;  // experts among which every block chooses for itself

int launch_route(const RouteArgs&, Stream);
int launch_choose(const ChoiceArgs&, uint32_t n_rows, Stream);
int launch_expert_mat_vec(const ExpertMatVecArgs&, Stream);
int prepare_expert_mat_vec();  // once per device
/// Slots and tiles of pairs sorted by expert; `sorted` points to the memory to fill.
int launch_sort_pairs(const Pairs&, uint32_t n_experts, const SortedPairs& sorted, Stream);
int launch_gate_pairs(const GatePairsArgs&, Stream);
int launch_combine(const CombineArgs&, Stream);

}  // namespace honeycrisp::backend::cuda
