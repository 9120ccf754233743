// SPDX-License-Identifier: Apache-2.0
//
// Which of cuDNN's plans for a convolution is the quickest, and running it.
#include "layers/backend/cuda/conv/conv_plans.h"

#include <cudnn_frontend.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "layers/backend/cuda/conv/conv_graph.h"
#include "layers/backend/cuda/cuda_check.h"

namespace convoy {

namespace fe = cudnn_frontend;

struct ConvolutionPlans::Plan {
  fe::graph::Graph graph;
  std::int64_t index = 0;      ///< among the graph's plans
  std::int64_t workspace = 0;  ///< bytes
  double time = kNoTime;       ///< milliseconds; 0 when it was taken without timing, kNoTime when there is no plan
  std::string refusal;         ///< cuDNN's message about a plan that it refuses
};

namespace {

fe::error_t execute(const CudaState& state, const fe::graph::Graph& graph, std::int64_t index,
                    const ConvBuffers& buffers, void* workspace) {
  std::unordered_map<std::int64_t, void*> pointers = variant_pack(buffers);
  return graph.execute_plan_at_index(state.cudnn, pointers, workspace, index);
}

/// Memory for a plan that is only tried: not from the pool, which would keep it. Taken and given back in the order of
/// the stream, so that no other stream is waited for.
class TrialWorkspace {
 public:
  TrialWorkspace(std::int64_t bytes, cudaStream_t stream)
      : stream_(stream),
        status_(bytes > 0 ? cudaMallocAsync(&data_, static_cast<std::size_t>(bytes), stream) : cudaSuccess) {}
  ~TrialWorkspace() {
    if (data_ != nullptr) cudaFreeAsync(data_, stream_);
  }
  TrialWorkspace(const TrialWorkspace&) = delete;
  TrialWorkspace& operator=(const TrialWorkspace&) = delete;
  [[nodiscard]] cudaError_t status() const { return status_; }
  [[nodiscard]] void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  cudaStream_t stream_;
  cudaError_t status_;
};

// Keeps the stream busy while the host queues launches, so that none of them waits for the host.
void hold_back(cudaStream_t stream, int launches) {
  constexpr int kHostTime = 40;  // microseconds to queue one launch, at most
  const auto sleep = [](void* microseconds) {
    std::this_thread::sleep_for(std::chrono::microseconds(reinterpret_cast<std::intptr_t>(microseconds)));
  };
  CONVOY_CUDA_CHECK(
      cudaLaunchHostFunc(stream, sleep, reinterpret_cast<void*>(std::intptr_t{kHostTime} * (launches + 1))));
}

// Milliseconds of one launch, the shortest of a few timings, or kNoTime where it does not run. Short ones are queued
// several at a time.
double time_plan(CudaState& state, Backend& backend, const fe::graph::Graph& graph, std::int64_t index,
                 const ConvBuffers& buffers, std::string& refusal) {
  constexpr int kTimings = 3;
  const TrialWorkspace workspace(graph.get_workspace_size_plan_at_index(index), state.stream);
  if (workspace.status() != cudaSuccess) {
    refusal = cudaGetErrorString(workspace.status());
    cudaGetLastError();  // else the next check of a launch would find it
    return kNoTime;
  }
  double best = kNoTime;
  int launches = 1;
  for (int timing = -1; timing < kTimings; ++timing) {  // the first one loads the kernels
    if (timing >= 0) hold_back(state.stream, launches);
    const std::unique_ptr<TimeMark> before = backend.mark();
    for (int i = 0; i < launches; ++i) {
      if (fe::error_t error = execute(state, graph, index, buffers, workspace.data()); error.is_bad()) {
        refusal = error.get_message();
        cudaGetLastError();
        return kNoTime;
      }
    }
    const std::unique_ptr<TimeMark> after = backend.mark();
    backend.synchronize();
    const double time = 1e3 * after->seconds_since(*before) / launches;
    if (timing >= 0) best = std::min(best, time);
    if (timing == 0) launches = launches_per_timing(time);
  }
  return best;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Timings add to these sums in place of the caller's.
ConvBuffers with_sums_in(const Tensor& scratch, ConvBuffers buffers) {
  void* const second = scratch.data<float>() + scratch.shape()[1];
  if (buffers.sums != nullptr) buffers.sums = scratch.raw(), buffers.squares = second;
  if (buffers.dgamma != nullptr) buffers.dgamma = scratch.raw(), buffers.dbeta = second;
  return buffers;
}

struct Choice {
  std::int64_t index = 0;
  double time = kNoTime;
};

// What a plan is kept under in the file.
std::string name_in_file(const ConvPlanKey& key, const CudaState& state) {
  return state.tf32 ? key.str() + " with TF32" : key.str();
}

// The index of the plan with that name; it is built. None where it is not among the graph's, or cannot be built.
std::optional<std::int64_t> plan_named(const CudaState& state, fe::graph::Graph& graph, const std::string& wanted) {
  const std::int64_t count = graph.get_execution_plan_count();
  for (std::int64_t i = 0; i < count; ++i) {
    std::string name;
    if (graph.get_plan_name_at_index(i, name).is_bad() || name != wanted) continue;
    if (graph.build_plan_at_index(state.cudnn, i).is_good()) return i;
    cudaGetLastError();
    break;
  }
  return std::nullopt;
}

// The quickest plan of `graph`, or the first one that can be built.
Choice try_plans(CudaState& state, Backend& backend, const ConvBuffers& buffers, fe::graph::Graph& graph,
                 std::string& refusal) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::int64_t> indices;
  std::vector<double> times;
  const std::int64_t count = graph.get_execution_plan_count();
  for (std::int64_t i = 0; i < count; ++i) {
    if (!try_another(indices.size(), seconds_since(start), !state.time_plans)) break;
    if (fe::error_t error = graph.build_plan_at_index(state.cudnn, i); error.is_bad()) {
      refusal = error.get_message();
      cudaGetLastError();
      continue;
    }
    const double time = !state.time_plans ? 0.0 : time_plan(state, backend, graph, i, buffers, refusal);
    if (time == kNoTime) continue;
    indices.push_back(i);
    times.push_back(time);
  }
  const std::size_t best = quickest(times);
  return best == times.size() ? Choice{} : Choice{indices[best], times[best]};
}

// The plan of `graph` to keep; its time is kNoTime, and `refusal` says why, when there is none.
Choice choose(const ConvPlanKey& key, CudaState& state, Backend& backend, const ConvBuffers& buffers, PlanFile& file,
              fe::graph::Graph& graph, std::string& refusal) {
  const EngineRules rules{state.tf32, state.deterministic};
  if (fe::error_t error = propose_plans(key, rules, state.cudnn, graph); error.is_bad()) {
    refusal = error.get_message();
    return {};
  }
  if (!state.time_plans) return try_plans(state, backend, buffers, graph, refusal);
  const std::string in_file = name_in_file(key, state);
  if (const std::string* kept = file.find(in_file)) {
    if (const auto index = plan_named(state, graph, *kept)) return {*index, 0.0};
  }
  const Choice choice = try_plans(state, backend, buffers, graph, refusal);
  std::string name;
  if (choice.time != kNoTime && graph.get_plan_name_at_index(choice.index, name).is_good()) {
    file.add(in_file, name, choice.time);
  }
  return choice;
}

}  // namespace

ConvolutionPlans::ConvolutionPlans(std::string file) : file_(std::move(file)) {}
ConvolutionPlans::~ConvolutionPlans() = default;

ConvolutionPlans::Plan& ConvolutionPlans::plan_for(CudaState& state, Backend& backend, const ConvPlanKey& key,
                                                   const ConvBuffers& buffers) {
  if (const auto found = plans_.find(key); found != plans_.end()) return *found->second;
  if (state.capturing()) {
    fail("the {} came up for the first time while work was being recorded: run the same shapes once before", key.str());
  }
  auto plan = std::make_unique<Plan>();
  const Tensor scratch = backend.tensor({2, std::max(key.in_channels, key.out_channels)}, DType::kF32);
  try {
    const Choice choice =
        choose(key, state, backend, with_sums_in(scratch, buffers), file_, plan->graph, plan->refusal);
    plan->index = choice.index;
    plan->time = choice.time;
    if (choice.time != kNoTime) plan->workspace = plan->graph.get_workspace_size_plan_at_index(choice.index);
  } catch (const fe::cudnnException& error) {
    plan->refusal = error.what();
  }
  return *plans_.emplace(key, std::move(plan)).first->second;
}

bool ConvolutionPlans::try_run(CudaState& state, Backend& backend, const ConvPlanKey& key, const ConvBuffers& buffers) {
  const Plan& plan = plan_for(state, backend, key, buffers);
  if (plan.time == kNoTime) return false;
  Tensor workspace;
  if (plan.workspace > 0) workspace = backend.tensor({workspace_block(plan.workspace)}, DType::kU8);
  fe::error_t error = execute(state, plan.graph, plan.index, buffers, workspace.raw());
  if (error.is_bad()) fail("the {} failed on {}: {}", key.str(), current_gpu(), error.get_message());
  return true;
}

void ConvolutionPlans::run(CudaState& state, Backend& backend, const ConvPlanKey& key, const ConvBuffers& buffers) {
  if (try_run(state, backend, key, buffers)) return;
  fail("cuDNN has no plan for the {} on {} (another number of channels or another train.precision may have one): {}",
       key.str(), current_gpu(), plan_for(state, backend, key, buffers).refusal);
}

}  // namespace convoy
