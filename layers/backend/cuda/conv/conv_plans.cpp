// SPDX-License-Identifier: Apache-2.0
//
// Convolution plans through cuDNN's graph API: one operation per graph, channels-last by strides, sums in float32.
#include "layers/backend/cuda/conv/conv_plans.h"

#include <cudnn_frontend.h>

#include <array>
#include <chrono>
#include <unordered_map>

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

constexpr std::int64_t kMaxWorkspace = std::int64_t{1} << 30;
enum Uid : std::int64_t { kX = 1, kW, kY };

fe::DataType_t frontend_type(DType type) {
  switch (type) {
    case DType::kF32: return fe::DataType_t::FLOAT;
    case DType::kBF16: return fe::DataType_t::BFLOAT16;
    case DType::kF16: return fe::DataType_t::HALF;
    default: fail("convolutions in {} are not supported on a GPU", dtype_name(type));
  }
}

fe::NumericalNote_t frontend_note(PlanNote note) {
  switch (note) {
    case PlanNote::kTensorCore: return fe::NumericalNote_t::TENSOR_CORE;
    case PlanNote::kDownConvertInputs: return fe::NumericalNote_t::DOWN_CONVERT_INPUTS;
    case PlanNote::kReducedPrecisionReduction: return fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION;
    case PlanNote::kNondeterministic: break;
  }
  return fe::NumericalNote_t::NONDETERMINISTIC;
}

// Logical [a, b, height, width], in memory [a, height, width, b].
fe::graph::Tensor_attributes channels_last(const char* name, Uid uid, DType type, std::int64_t a, std::int64_t b,
                                           std::int64_t height, std::int64_t width) {
  return fe::graph::Tensor_attributes()
      .set_name(name)
      .set_uid(uid)
      .set_data_type(frontend_type(type))
      .set_dim({a, b, height, width})
      .set_stride({height * width * b, 1, width * b, b});
}

void as_output(const std::shared_ptr<fe::graph::Tensor_attributes>& tensor, fe::graph::Tensor_attributes wanted) {
  *tensor = wanted.set_output(true);
}

template <class Attributes>
Attributes window(const ConvPlanKey& key) {
  Attributes attributes;
  const Window2d& w = key.window;
  attributes.set_padding({w.padding.height, w.padding.width})
      .set_stride({w.stride.height, w.stride.width})
      .set_dilation({1, 1});
  return attributes;
}

void add_operation(const ConvPlanKey& key, fe::graph::Graph& graph) {
  const auto x = channels_last("x", kX, key.type, key.batch, key.in_channels, key.height, key.width);
  // cuDNN takes the number of groups from the input channels of the weight.
  const auto w = channels_last("w", kW, key.type, key.out_channels, key.in_channels / key.groups,
                               key.window.kernel.height, key.window.kernel.width);
  const auto y = channels_last("y", kY, key.type, key.batch, key.out_channels, key.out_height(), key.out_width());
  switch (key.direction) {
    case ConvDirection::kForward: {
      const auto attributes = window<fe::graph::Conv_fprop_attributes>(key);
      as_output(graph.conv_fprop(graph.tensor(x), graph.tensor(w), attributes), y);
      return;
    }
    case ConvDirection::kBackwardInput: {
      const auto attributes = window<fe::graph::Conv_dgrad_attributes>(key);
      as_output(graph.conv_dgrad(graph.tensor(y), graph.tensor(w), attributes), x);
      return;
    }
    case ConvDirection::kBackwardWeight: {
      const auto attributes = window<fe::graph::Conv_wgrad_attributes>(key);
      as_output(graph.conv_wgrad(graph.tensor(y), graph.tensor(x), attributes), w);
      return;
    }
  }
}

// Asks cuDNN which plans it has for `key`, best first, and bars those that are not used.
fe::error_t propose(const ConvPlanKey& key, const CudaState& state, fe::graph::Graph& graph) {
  graph.set_intermediate_data_type(fe::DataType_t::FLOAT).set_compute_data_type(fe::DataType_t::FLOAT);
  add_operation(key, graph);
  if (fe::error_t error = graph.validate(); error.is_bad()) return error;
  if (fe::error_t error = graph.build_operation_graph(state.cudnn); error.is_bad()) return error;
  fe::error_t error = graph.create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK});
  if (error.is_bad()) return error;
  std::vector<fe::NumericalNote_t> barred;
  for (const PlanNote note : barred_notes(key.type, state.tf32, state.deterministic)) {
    barred.push_back(frontend_note(note));
  }
  graph.deselect_numeric_notes(barred).deselect_workspace_greater_than(kMaxWorkspace);
  return error;
}

fe::error_t execute(const CudaState& state, const fe::graph::Graph& graph, std::int64_t index,
                    const ConvBuffers& buffers, void* workspace) {
  std::unordered_map<std::int64_t, void*> pointers{{kX, buffers.x}, {kW, buffers.w}, {kY, buffers.y}};
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

/// Milliseconds between two moments on a stream.
class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {
    for (cudaEvent_t& event : events_) CONVOY_CUDA_CHECK(cudaEventCreate(&event));
  }
  ~Stopwatch() {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  void start() { CONVOY_CUDA_CHECK(cudaEventRecord(events_[0], stream_)); }
  /// Waits until the stream is here.
  double stop() {
    CONVOY_CUDA_CHECK(cudaEventRecord(events_[1], stream_));
    CONVOY_CUDA_CHECK(cudaEventSynchronize(events_[1]));
    float milliseconds = 0.0F;
    CONVOY_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, events_[0], events_[1]));
    return milliseconds;
  }

 private:
  cudaStream_t stream_;
  std::array<cudaEvent_t, 2> events_{};
};

// The shortest of a few runs, or kNoTime where it does not run.
double time_plan(const CudaState& state, const fe::graph::Graph& graph, std::int64_t index, const ConvBuffers& buffers,
                 std::string& refusal) {
  constexpr int kRuns = 3;
  const TrialWorkspace workspace(graph.get_workspace_size_plan_at_index(index), state.stream);
  if (workspace.status() != cudaSuccess) {
    refusal = cudaGetErrorString(workspace.status());
    cudaGetLastError();  // else the next check of a launch would find it
    return kNoTime;
  }
  Stopwatch watch(state.stream);
  double best = kNoTime;
  for (int run = -1; run < kRuns; ++run) {  // the first one loads the kernels
    watch.start();
    if (fe::error_t error = execute(state, graph, index, buffers, workspace.data()); error.is_bad()) {
      refusal = error.get_message();
      cudaGetLastError();
      return kNoTime;
    }
    const double time = watch.stop();
    if (run >= 0) best = std::min(best, time);
  }
  return best;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Choice {
  std::int64_t index = 0;
  double time = kNoTime;
};

// The plan of `graph` to keep; its time is kNoTime, and `refusal` says why, when there is none.
Choice choose(const ConvPlanKey& key, const CudaState& state, const ConvBuffers& buffers, fe::graph::Graph& graph,
              std::string& refusal) {
  if (fe::error_t error = propose(key, state, graph); error.is_bad()) {
    refusal = error.get_message();
    return {};
  }
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::int64_t> indices;
  std::vector<double> times;
  const std::int64_t count = graph.get_execution_plan_count();
  for (std::int64_t i = 0; i < count; ++i) {
    if (!try_another(indices.size(), seconds_since(start), state.deterministic)) break;
    if (fe::error_t error = graph.build_plan_at_index(state.cudnn, i); error.is_bad()) {
      refusal = error.get_message();
      cudaGetLastError();
      continue;
    }
    const double time = state.deterministic ? 0.0 : time_plan(state, graph, i, buffers, refusal);
    if (time == kNoTime) continue;
    indices.push_back(i);
    times.push_back(time);
  }
  const std::size_t best = quickest(times);
  return best == times.size() ? Choice{} : Choice{indices[best], times[best]};
}

}  // namespace

ConvolutionPlans::ConvolutionPlans() = default;
ConvolutionPlans::~ConvolutionPlans() = default;

ConvolutionPlans::Plan& ConvolutionPlans::plan_for(CudaState& state, const ConvPlanKey& key,
                                                   const ConvBuffers& buffers) {
  if (const auto found = plans_.find(key); found != plans_.end()) return *found->second;
  if (state.capturing()) {
    fail("the {} came up for the first time while work was being recorded: run the same shapes once before", key.str());
  }
  auto plan = std::make_unique<Plan>();
  try {
    const Choice choice = choose(key, state, buffers, plan->graph, plan->refusal);
    plan->index = choice.index;
    plan->time = choice.time;
    if (choice.time != kNoTime) plan->workspace = plan->graph.get_workspace_size_plan_at_index(choice.index);
  } catch (const fe::cudnnException& error) {
    plan->refusal = error.what();
  }
  return *plans_.emplace(key, std::move(plan)).first->second;
}

void ConvolutionPlans::run(CudaState& state, Backend& backend, const ConvPlanKey& key, const ConvBuffers& buffers) {
  const Plan& plan = plan_for(state, key, buffers);
  if (plan.time == kNoTime) {
    fail("cuDNN has no plan for the {} on {} (another number of channels or another train.precision may have one): {}",
         key.str(), current_gpu(), plan.refusal);
  }
  Tensor workspace;
  if (plan.workspace > 0) workspace = backend.tensor({workspace_block(plan.workspace)}, DType::kU8);
  fe::error_t error = execute(state, plan.graph, plan.index, buffers, workspace.raw());
  if (error.is_bad()) fail("the {} failed on {}: {}", key.str(), current_gpu(), error.get_message());
}

}  // namespace convoy
